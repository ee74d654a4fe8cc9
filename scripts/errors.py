"""Hold docs/errors.md against the code: a section for every slug that a person can be shown, and none for others.

    python scripts/errors.py --check    name what is missing or left over, exit 1 if anything is
    python scripts/errors.py --add      append a heading with the error's own words for each missing slug

A section is ``## slug``, a paragraph on what it means, and one that begins with ``**What to do.**``.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/errors.md"
ADVICE = "**What to do.**"
SLUG = re.compile(r"[a-z][a-z0-9_]*(-[a-z0-9_]+)*")
PAIR = re.compile(r"[a-z]+(-[a-z0-9]+)+")


@dataclass(frozen=True)
class Use:
    """A place where a slug is given away: by what, the slug (None if it is no literal), where, the words beside it."""

    giver: str
    slug: str | None
    place: str
    words: str


def error_classes(trees: dict[Path, ast.Module]) -> set[str]:
    """Names of NsysSyncError and of all classes that descend from it."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    family = {"NsysSyncError"}
    while more := {name for name, parents in bases.items() if parents & family} - family:
        family |= more
    return family


def words_of(node: ast.expr) -> str:
    """A string as the source spells it, with … where a value is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(words_of(part) for part in parts)
        case _:
            return "…"


def given_slug(node: ast.AST, family: set[str]) -> tuple[str, ast.expr | None, list[ast.expr]] | None:
    """(giver, slug, words) of ``SomeError("slug", …)``, ``Note(slug=…)`` and a pair ``("slug", "A sentence.")``."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in family or name == "Note":
            named = {keyword.arg: keyword.value for keyword in node.keywords}
            slug = named.pop("slug", None)
            positional = node.args if slug is not None else node.args[1:]
            return name, slug or (node.args[0] if node.args else None), [*positional, *named.values()]
        case ast.Tuple(elts=[ast.Constant(value=str(slug)) as first, second]) if PAIR.fullmatch(slug) and says(second):
            return "Note", first, [second]
        case _:
            return None


def says(node: ast.expr) -> bool:
    """Whether an expression is a sentence, or a name that a sentence may go by."""
    return " " in words_of(node) or (isinstance(node, ast.Name) and node.id == "text")


def uses(package: Path) -> list[Use]:
    """Every error raised and every note made below the folder, in order of file and line."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    family = error_classes(trees)
    found = []
    for path, tree in trees.items():
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr)]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            if given := given_slug(node, family):
                giver, slug, words = given
                literal = isinstance(slug, ast.Constant) and isinstance(slug.value, str)
                place = f"{path.relative_to(package.parent)}:{node.lineno}"
                found.append(
                    Use(giver, words_of(slug) if slug and literal else None, place, " ".join(map(words_of, words)))
                )
    return found


def sections(page: str) -> dict[str, str]:
    """Text of each section by its slug."""
    parts = re.split(r"^## +(.+?) *$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def complaints(found: list[Use], page: str) -> list[str]:
    """What is wrong, a sentence each."""
    written = sections(page)
    places: dict[str, Use] = {}
    wrong = []
    for use in found:
        if use.slug is None:
            # A note may pass on what the capture wrote down; an error is raised by someone who knows its name.
            if use.giver != "Note":
                wrong.append(f"{use.place}: give {use.giver} its slug as a literal, so that it can be looked up")
            continue
        if not SLUG.fullmatch(use.slug):
            wrong.append(f"{use.place}: “{use.slug}” is no slug: lower case, digits and hyphens")
        places.setdefault(use.slug, use)
    for slug, use in places.items():
        if slug not in written:
            wrong.append(f"docs/errors.md lacks “## {slug}” ({use.place}); begin with: python scripts/errors.py --add")
            continue
        meaning, advice, action = written[slug].partition(ADVICE)
        meaning = re.sub(r"^>.*$", "", meaning, flags=re.MULTILINE)
        if not (meaning.strip() and advice and action.strip()):
            wrong.append(f"docs/errors.md, “## {slug}”: write what it means, then “{ADVICE} …”")
    wrong += [f"docs/errors.md: nothing gives “{slug}” any more: remove it" for slug in written if slug not in places]
    return wrong


def main() -> int:
    """Check or add, return the exit code."""
    parser = argparse.ArgumentParser(description="Hold docs/errors.md against the code.")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="name what is missing, exit 1 if anything is")
    mode.add_argument("--add", action="store_true", help="append a heading for each missing slug")
    chosen = parser.parse_args()
    found = uses(ROOT / "nsys_sync")
    page = PAGE.read_text()
    if chosen.add:
        missing = {use.slug: use for use in found if use.slug and use.slug not in sections(page)}
        for slug, use in missing.items():
            page = f"{page.rstrip()}\n\n## {slug}\n\n> {use.words}\n"
            print(f"docs/errors.md: write the section {slug} ({use.place})")
        PAGE.write_text(page)
        return 0
    wrong = complaints(found, page)
    print("\n".join(wrong) or "docs/errors.md is complete")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
