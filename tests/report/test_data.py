from __future__ import annotations

import csv
import io
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings

from nsys_sync.analysis import findings as f
from nsys_sync.errors import OutputError
from nsys_sync.report import data
from tests.report.factory import HOSTILE, make_report, make_site, reports


def rows(report: f.Report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.csv_text(report))))


def test_csv_has_a_row_a_site_longest_wait_first() -> None:
    found = rows(make_report([make_site(2), make_site(0), make_site(1)]))
    assert [r["id"] for r in found] == ["site0000", "site0001", "site0002"]
    assert found[0] | {"file": "/home/me/project/train.py", "line": "14", "wait_ns": "20000000"} == found[0]
    assert found[0]["apis"] == "cudaMemcpyAsync=10 cudaStreamSynchronize=10"
    assert found[0]["source"] == "h = out.cpu()"


def test_csv_leaves_the_unmeasured_empty() -> None:
    found = rows(make_report([make_site(recoverable_ns=None, idle_ns=None, leaf=None, source=None)]))[0]
    empty = ("recoverable_ns", "idle_sync_wait_ns", "leaf_file", "source", "step_ns_low", "confidence")
    assert [found[name] for name in empty] == [""] * 6


@pytest.mark.parametrize("hostile", [*HOSTILE, "=1+1", "@SUM(A1)", "-2", "+3"])
def test_csv_cells_are_one_line_and_no_formula(hostile: str) -> None:
    text = data.csv_text(make_report([make_site(function=hostile, title=hostile, file=hostile)]))
    assert text.count("\n") == 2
    for cell in rows(make_report([make_site(function=hostile, title=hostile)]))[0].values():
        assert not cell.startswith(("=", "+", "-", "@"))


def test_csv_is_not_overwritten_without_force(tmp_path: Path) -> None:
    path = tmp_path / "sites.csv"
    assert data.write_csv(make_report(), path) == path
    before = path.read_bytes()
    with pytest.raises(OutputError) as error:
        data.write_csv(make_report([]), path)
    assert error.value.slug == "output-exists"
    assert path.read_bytes() == before
    data.write_csv(make_report([]), path, force=True)
    assert len(path.read_text().splitlines()) == 1


def test_sqlite_answers_questions_in_sql(tmp_path: Path) -> None:
    path = data.save_sqlite(make_report(), tmp_path / "findings.sqlite")
    with sqlite3.connect(path) as database:
        worst = database.execute("SELECT file, line, wait_ns FROM sites ORDER BY wait_ns DESC").fetchone()
        stack = database.execute("SELECT function FROM frames WHERE site = 0 ORDER BY depth").fetchall()
        idle = database.execute("SELECT idle_sync_refill_ns, name FROM devices").fetchone()
        apis = database.execute(
            "SELECT sum(apis.calls) FROM apis JOIN sites USING (site) WHERE class = 'avoidable'"
        ).fetchone()
        gap = database.execute("SELECT id FROM gaps JOIN sites USING (site)").fetchone()
        scopes = database.execute("SELECT scope, confidence FROM what_ifs").fetchall()
    database.close()
    assert worst == ("/home/me/project/train.py", 14, 20_000_000)
    assert stack == [("cpu",), ("step",), ("<module>",)]
    assert idle == (30_000_000, "NVIDIA H200")
    assert apis == (60,)
    assert gap == ("site0000",)
    assert scopes == [("all", "medium")]


def test_sqlite_tables_exist_even_when_empty(tmp_path: Path) -> None:
    path = data.save_sqlite(make_report([]), tmp_path / "findings.sqlite")
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM sites").fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM notes").fetchone() == (0,)
        assert database.execute("SELECT recoverable_ns FROM report").fetchone() == (0,)
    database.close()


@settings(max_examples=25, deadline=None)
@given(reports())
def test_any_report_can_be_saved(tmp_path_factory: pytest.TempPathFactory, report: f.Report) -> None:
    path = data.save_sqlite(report, tmp_path_factory.mktemp("saved") / "any.sqlite")
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM sites").fetchone() == (len(report.sites),)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    assert len(rows(report)) == len(report.sites)


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: f.Report) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(data, "_tables", fail)
    with pytest.raises(OutputError, match="No space left"):
        data.save_sqlite(make_report(), tmp_path / "findings.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a folder"):
        data.write_csv(make_report(), tmp_path)
    with pytest.raises(OutputError, match="does not exist"):
        data.write_csv(make_report(), tmp_path / "no" / "sites.csv")
