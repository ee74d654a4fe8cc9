"""Columns by way of Arrow: every value, NULL as -1, and an error instead of a wrong number."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nsys_sync.trace import arrow

SEVERAL_BATCHES = 40_000


def database(folder: Path, rows: list[tuple[object, ...]]) -> str:
    path = folder / "some.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a INTEGER, b INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    connection.close()
    return f"file:{path}?mode=ro&immutable=1"


def fetched(uri: str) -> list[list[int]]:
    return [column.tolist() for column in arrow.fetch(uri, "SELECT a, b FROM t", 2)]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1 << 14, (1 << 14) + 1, SEVERAL_BATCHES])
def test_all_rows_in_their_order_and_null_as_minus_one(tmp_path: Path, count: int) -> None:
    rows = [(i - 5, None if i % 3 == 0 else -i) for i in range(count)]
    assert fetched(database(tmp_path, [*rows])) == [
        [a for a, _ in rows],
        [-1 if b is None else b for _, b in rows],
    ]


def test_a_column_of_nothing_but_null(tmp_path: Path) -> None:
    assert fetched(database(tmp_path, [(1, None), (2, None)])) == [[1, 2], [-1, -1]]


def test_the_largest_numbers(tmp_path: Path) -> None:
    ends = [(2**63 - 1, -(2**63))]
    assert fetched(database(tmp_path, [*ends])) == [[2**63 - 1], [-(2**63)]]


@pytest.mark.parametrize("value", ["text", b"blob", 1.5])
def test_what_is_no_integer_is_an_error_in_the_first_rows(tmp_path: Path, value: object) -> None:
    with pytest.raises(TypeError, match="Arrow's types"):
        fetched(database(tmp_path, [(1, value)]))


@pytest.mark.parametrize("value", ["text", b"blob", 1.5])
def test_what_is_no_integer_is_an_error_in_later_rows(tmp_path: Path, value: object) -> None:
    uri = database(tmp_path, [*((i, i) for i in range(SEVERAL_BATCHES)), (1, value)])
    with pytest.raises(sqlite3.DatabaseError, match="INT64"):
        fetched(uri)


def test_two_threads_read_at_once(tmp_path: Path) -> None:
    uri = database(tmp_path, [(i, -i) for i in range(SEVERAL_BATCHES)])
    expected = [list(range(SEVERAL_BATCHES)), [-i for i in range(SEVERAL_BATCHES)]]
    with ThreadPoolExecutor(4) as pool:
        assert all(found == expected for found in pool.map(fetched, [uri] * 12))


def test_a_file_whose_rest_is_lost(tmp_path: Path) -> None:
    uri = database(tmp_path, [(i, i) for i in range(SEVERAL_BATCHES)])
    path = tmp_path / "some.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2].ljust(len(whole), b"\0"))
    with pytest.raises(sqlite3.DatabaseError, match="malformed"):
        fetched(uri)
