# shellcheck shell=bash
# Sourced by the other scripts: `use_venv EXTRAS` makes .venv beside pyproject.toml, installs the project in it with
# those extras ("" for none) and puts it first on PATH. Does nothing twice. PYTHON names another interpreter.

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$1" >&2
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local candidate
  if [[ -n ${PYTHON:-} ]]; then
    new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python of at least 3.11."
    echo "$PYTHON"
    return
  fi
  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  fail "Python 3.11 or newer is needed; python3 here is $(python3 --version 2>/dev/null || echo missing)." \
    "Debian: apt-get install python3 python3-venv" \
    "Ubuntu 22.04: apt-get install python3.11 python3.11-venv" \
    "Or name one: PYTHON=/path/to/python $0"
}

use_venv() {
  local extras=$1 python version stamp
  python=$(find_python)
  if [[ ! -x .venv/bin/python ]]; then
    version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
      fail "$python cannot make a virtual environment." "Debian, Ubuntu: apt-get install $version-venv"
    "$python" -m venv .venv || fail "$python -m venv .venv failed." "Remove .venv and run $0 again."
  fi
  new_enough .venv/bin/python || fail ".venv is older than Python 3.11 or broken." "Remove it: rm -r .venv"
  # What was installed, for which set of packages: equal means that there is nothing to do.
  stamp=$(cat pyproject.toml <(pwd) <(echo "$extras") | sha256sum)
  if [[ $(cat .venv/nsys-sync-stamp 2>/dev/null) != "$stamp" ]]; then
    echo "Installing nsys-sync${extras:+[$extras]} in .venv" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".${extras:+[$extras]}" ||
      fail "pip could not install the project (its message is above)." "Run $0 again when the cause is gone."
    echo "$stamp" >.venv/nsys-sync-stamp
  fi
  export PATH=$PWD/.venv/bin:$PATH
}
