#!/usr/bin/env bash
# Put NVIDIA Nsight Systems 2023.4.4 (command line, importer, exporter) into a folder. Needs no GPU, driver or root.
#
#   scripts/install_nsys.sh [FOLDER]      default: ~/.cache/nsys-sync/nsight-systems-2023.4.4
#
# Debian distributes it (non-free, suite trixie, amd64). The packages come from the Debian mirror that this machine's
# apt uses already, or from the one in DEBIAN_MIRROR; apt checks their signature; nothing of the system is changed.
# The last line printed is the path of the nsys to run.
set -euo pipefail

version=2023.4.4
suite=trixie
packages=(nsight-systems nsight-systems-target)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
folder=${1:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/nsys-sync/nsight-systems-$version}

fail() {
  printf 'install_nsys: %s\n' "$@" >&2
  exit 1
}

works() { [[ -x $1/bin/nsys ]] && "$1/bin/nsys" --version 2>/dev/null | grep -qF "$version"; }

mkdir -p "$(dirname "$folder")"
folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
if works "$folder"; then
  echo "$folder/bin/nsys"
  exit 0
fi
[[ ! -e $folder ]] || fail "$folder exists and is no Nsight Systems $version." "Remove it, or name another folder."
for tool in apt-get dpkg dpkg-deb tar; do
  command -v "$tool" >/dev/null || fail "$tool is not here; this needs Debian's or Ubuntu's apt." \
    "Elsewhere install Nsight Systems from NVIDIA."
done
[[ $(dpkg --print-architecture) == amd64 ]] || fail "Debian has Nsight Systems $version for amd64 only."
[[ -r $keyring ]] || fail "$keyring is missing: without it apt cannot check the packages." \
  "Install it: apt-get install debian-archive-keyring"

work=$(mktemp -d "$folder.part-XXXXXX")
trap 'rm -rf "$work"' EXIT
# An apt of its own: its lists, cache and sources stand under $work, so it needs no root and meets no lock.
mkdir -p "$work"/apt/lists/partial "$work"/apt/cache/archives/partial "$work"/debs
own=(-o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=root)
only=(-o "Dir::Etc::SourceList=$work/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Acquire::Languages=none)

# "MIRROR SUITE" for each archive with a component main; apt itself reads the sources, in whichever format they are.
archives() {
  apt-get "${own[@]}" --print-uris update 2>/dev/null |
    sed -nE "s#^'(.+)/dists/([^/']+)/main/binary-amd64/.*#\1 \2#p" | sort -u
}

# Whether this mirror has the suite, signed by Debian; leaves its lists for `apt-get download`.
try() {
  printf 'deb [signed-by=%s] %s %s\n' "$keyring" "$1" "$suite main non-free" >"$work/apt/sources.list"
  [[ -z $2 || $2 == "$suite" ]] || printf 'deb [signed-by=%s] %s %s\n' "$keyring" "$1" "$2 main" >>"$work/apt/sources.list"
  apt-get "${own[@]}" "${only[@]}" -qq -o APT::Update::Error-Mode=any update >"$work/apt/log" 2>&1
}

release=$(. /etc/os-release; [[ $ID != debian ]] || echo "${VERSION_CODENAME:-$suite}")
mirror=
if [[ -n ${DEBIAN_MIRROR:-} ]]; then
  try "${DEBIAN_MIRROR%/}" "$release" || fail "DEBIAN_MIRROR does not give Debian's $suite:" "$(tail -n 3 "$work/apt/log")"
  mirror=${DEBIAN_MIRROR%/}
else
  while read -r candidate; do
    if try "$candidate" "$release"; then
      mirror=$candidate
      break
    fi
  done < <(archives | cut -d' ' -f1 | uniq)
fi
[[ -n $mirror ]] || fail "No Debian mirror with the suite $suite is among apt's sources." \
  "Name one: DEBIAN_MIRROR=http://MIRROR/debian $0" "$(tail -n 1 "$work/apt/log" 2>/dev/null || true)"

download() {
  (cd "$work/debs" && apt-get "${own[@]}" "${only[@]}" -qq download "$@" >"$work/apt/log" 2>&1) ||
    fail "$* did not come from $mirror:" "$(tail -n 3 "$work/apt/log")"
}

echo "Downloading ${packages[*]} from $mirror" >&2
download "${packages[@]/%//$suite}"

# What only the graphical program uses stays out: 210 of 640 MB.
leave_out=(--exclude='*/libQt6WebEngine*' --exclude='*/host-linux-x64/translations' --exclude='*/host-linux-x64/Plugins'
  --exclude='*/host-linux-x64/nsys-ui*' --exclude='*/host-linux-x64/libexec')
mkdir "$work/files" "$work/nsys"
for deb in "$work"/debs/*.deb; do
  dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/files" "${leave_out[@]}"
done
for half in target-linux-x64 host-linux-x64; do
  found=$(find "$work/files/usr/lib" -type d -name "$half" -print -quit)
  [[ -n $found ]] || fail "The packages hold no $half; Debian has changed their layout."
  mv "$found" "$work/nsys/$half"
done

# Libraries that Debian links from the system. Those it has are used; the others come from its own suite and stand beside
# the programs, which look there first.
declare -A packages_of=(
  [libcom_err.so.2]=libcom-err2 [libcrypto.so.3]=libssl3 [libelf.so.1]=libelf1 [libgcc_s.so.1]=libgcc-s1
  [libgssapi_krb5.so.2]=libgssapi-krb5-2 [libk5crypto.so.3]=libk5crypto3 [libkeyutils.so.1]=libkeyutils1
  [libkrb5.so.3]=libkrb5-3 [libkrb5support.so.0]=libkrb5support0 [libpfm.so.4]=libpfm4 [libsqlite3.so.0]=libsqlite3-0
  [libssh.so.4]=libssh-4 [libstdc++.so.6]=libstdc++6 [libz.so.1]=zlib1g [libzstd.so.1]=libzstd1 [libbz2.so.1.0]=libbz2-1.0
  [liblzma.so.5]=liblzma5
)

fetch_library() { # LIBRARY FOLDER
  local package=${packages_of[$1]:-}
  [[ -n $package ]] || fail "$1 is missing; install the package that holds it."
  [[ -n $release ]] || fail "$1 is missing." "Install it: apt-get install $package"
  (download "$package/$release") 2>/dev/null || download "${package}t64/$release"
  dpkg-deb --fsys-tarfile "$work"/debs/"$package"*.deb | tar -x -C "$work/files"
  cp -L "$(find "$work/files" -name "$1" -print -quit)" "$2/$1"
}

find "$work/nsys" -xtype l -delete
host=$work/nsys/host-linux-x64
if system=$(/sbin/ldconfig -p | grep -m 1 -o '/.*/libssh\.so\.4$'); then
  ln -s "$system" "$host/libssh.so"
else
  fetch_library libssh.so.4 "$host"
  ln -s libssh.so.4 "$host/libssh.so"
fi
for program in target-linux-x64/{nsys,nsys-launcher} host-linux-x64/{QdstrmImporter,ResolveSymbols,libexporter.so}; do
  beside=$work/nsys/${program%/*}
  while missing=$(LD_LIBRARY_PATH=$beside ldd "$work/nsys/$program" | grep -m 1 'not found'); do
    fetch_library "$(awk '{print $1}' <<<"$missing")" "$beside"
  done
done

mkdir "$work/nsys/bin"
ln -s ../target-linux-x64/nsys "$work/nsys/bin/nsys"
works "$work/nsys" || fail "nsys does not run:" "$("$work/nsys/bin/nsys" --version 2>&1 | head -n 3)"
# Another run of this script may have been first.
mv -T "$work/nsys" "$folder" 2>/dev/null || works "$folder" || fail "$folder cannot be written."
echo "$folder/bin/nsys"
