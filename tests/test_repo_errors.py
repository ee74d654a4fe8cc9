"""docs/errors.md explains every error and note, and the script that says so finds what is wrong."""

from __future__ import annotations

from pathlib import Path

from scripts import errors


def package(folder: Path, source: str) -> Path:
    (folder / "pkg").mkdir()
    (folder / "pkg/module.py").write_text(source)
    return folder / "pkg"


SOURCE = """
class NsysSyncError(Exception): ...
class InputError(NsysSyncError): ...
class DeepError(InputError): ...
def f(name, slug):
    raise InputError("no-file", f"{name} is not there.", "Name another.")
    raise DeepError(slug="too-deep", message="It is deep.")
    warnings.append(Note(slug="odd", text="Odd."))
    warnings.append(Note(slug=slug, text="Passed on."))
    self.warnings.append(("newer-schema", f"Version {name} is newer."))
    names.append(("no", "note at all"))
    return ("--option-like", "value of it"), ("host-name", "value")
    raise ValueError("not-ours")
"""


def test_page_is_complete() -> None:
    assert errors.complaints(errors.uses(errors.ROOT / "nsys_sync"), errors.PAGE.read_text()) == []


def test_finds_errors_of_the_whole_family_and_notes(tmp_path: Path) -> None:
    found = errors.uses(package(tmp_path, SOURCE))
    assert [use.slug for use in found] == ["no-file", "too-deep", "odd", None, "newer-schema"]
    assert found[0].words == "… is not there. Name another."


def test_names_missing_empty_and_left_over_sections(tmp_path: Path) -> None:
    found = errors.uses(package(tmp_path, SOURCE))
    page = "# Errors\n## no-file\n\nIt is gone.\n\n**What to do.** Look.\n\n## odd\n\n> Odd.\n\n## old\n\nOnce.\n"
    missing, empty, noted, left = errors.complaints(found, page)
    assert "“## too-deep” (pkg/module.py:7)" in missing
    assert "errors.py --add" in missing
    assert "“## odd”" in empty
    assert "“## newer-schema”" in noted
    assert "“old”" in left


def test_wants_literal_well_formed_slugs(tmp_path: Path) -> None:
    source = (
        'class NsysSyncError(Exception): ...\nraise NsysSyncError("No Slug", "x")\nraise NsysSyncError(slug, "x")\n'
    )
    ill_formed, unnamed, _ = errors.complaints(errors.uses(package(tmp_path, source)), "# Errors\n")
    assert "module.py:2" in ill_formed
    assert "module.py:3" in unnamed
