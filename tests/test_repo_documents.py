"""What the documents show is what the program prints, and what they point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import readme

DOCUMENTS = sorted(
    path for pattern in ["*.md", "docs/**/*.md", "sample_traces/*.md"] for path in readme.ROOT.glob(pattern)
)


def anchors(page: Path) -> set[str]:
    """Anchors that a page's headings get where Markdown is shown."""
    headings = re.findall(r"^#+ +(.+?) *$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(readme.ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"(?:\]\(|(?:src|srcset)=\")([^)\s\"]+)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), f"{page.name} points at {target}"
        assert not anchor or anchor in anchors(there), f"{page.name} points at {target}"


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(readme.ROOT)))
def test_generated_blocks_are_fresh(page: Path) -> None:
    text = page.read_text()
    assert readme.filled(text) == text, "run: python scripts/readme.py"


def test_the_readme_leads_to_every_document() -> None:
    text = (readme.ROOT / "README.md").read_text()
    for page in readme.ROOT.glob("docs/*.md"):
        assert text.count(f"\n- [docs/{page.name}](docs/{page.name}): ") == 1, page.name


def test_every_block_is_closed_and_known() -> None:
    for page in DOCUMENTS:
        text = page.read_text()
        opened = re.findall(r"<!-- (?:output|table):", text)
        assert len(opened) == len(readme.BLOCK.findall(text)), page


def test_a_stale_block_is_made_anew() -> None:
    page = "before\n<!-- table: traces -->\nold\n<!-- end -->\nafter\n"
    made = readme.filled(page)
    assert made.startswith("before\n<!-- table: traces -->\n| trace |")
    assert "| `probe-sync` | 41 | 19.35 | 107.56 | `probe_train.py:14` (140.22 ms) |" in made
    assert "old" not in made
    assert made.endswith("<!-- end -->\nafter\n")
    assert readme.filled(made) == made


def test_runs_nothing_but_its_own_program() -> None:
    with pytest.raises(RuntimeError, match="only nsys-sync"):
        readme.filled("<!-- output: ls -->\n<!-- end -->\n")
