"""Many askers, one database: what one of them does, the others do not see."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from lakehand import duckdb_pool
from lakehand.duckdb_pool import connect, lease
from lakehand.expressions import duckdb_session

#: The threads of this process.
_TASKS = Path("/proc/self/task")

IN_A_FORK = """
import os
from lakehand.duckdb_pool import connect

with connect() as connection:
    connection.execute("SELECT sum(i) FROM range(1000000) t(i)").fetchall()
child = os.fork()
if not child:
    with connect() as connection:
        found = connection.execute("SELECT sum(i) FROM range(1000000) t(i)").fetchall()
    os._exit(found != [(499999500000,)])
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_registered_and_temporary_tables_are_private():
    with connect() as one, connect() as other:
        one.register("rows", pa.table({"a": [1]}))
        other.register("rows", pa.table({"a": [2]}))
        one.execute("CREATE TEMP TABLE made AS SELECT 1")

        assert one.sql("SELECT a FROM rows").fetchall() == [(1,)]
        assert other.sql("SELECT a FROM rows").fetchall() == [(2,)]
        with pytest.raises(duckdb.CatalogException):
            other.sql("SELECT * FROM made")


def test_times_are_in_utc_whatever_another_has_chosen():
    with connect() as one, connect() as other:
        one.execute("SET TimeZone = 'Asia/Tokyo'")

        # As text: a Python value of it needs pytz.
        [(found,)] = other.sql("SELECT (TIMESTAMPTZ '2026-01-01 00:00:00')::VARCHAR").fetchall()

    assert found == "2026-01-01 00:00:00+00"


def test_threads_ask_at_the_same_time():
    def ask(number: int) -> int:
        with connect(threads=1) as connection:
            connection.register("rows", pa.table({"a": [number] * 1000}))
            [(found,)] = connection.sql("SELECT sum(a)::BIGINT FROM rows").fetchall()
        return found

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(200))) == [number * 1000 for number in range(200)]


def test_a_database_that_answers_nothing_any_more_is_replaced():
    connect().close()
    duckdb_pool._databases[os.getpid(), None].close()

    with connect() as connection:
        assert connection.sql("SELECT 1").fetchall() == [(1,)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_has_a_database_of_its_own():
    done = subprocess.run([sys.executable, "-c", IN_A_FORK], check=False, timeout=60)

    assert done.returncode == 0


def test_a_file_that_was_replaced_is_read_anew(tmp_path):
    path = tmp_path / "rows.parquet"
    for number in range(3):
        pa.parquet.write_table(pa.table({"a": [number]}), path)
        with connect() as connection:
            assert connection.sql(f"SELECT a FROM read_parquet('{path}')").fetchall() == [(number,)]


def test_a_database_with_limits_is_left_to_the_next_who_has_the_same(tmp_path):
    limits = {"threads": 1, "memory_limit": "100MB"}
    with lease(limits, spill_directory=str(tmp_path)) as first:
        first.execute("CREATE TABLE remains AS SELECT 1")
    with lease(limits, spill_directory=str(tmp_path)) as second:
        assert second.sql("SELECT * FROM remains").fetchall() == [(1,)]
        with lease(limits, spill_directory=str(tmp_path)) as at_the_same_time:
            assert not at_the_same_time.sql("SHOW TABLES").fetchall()
    with lease({**limits, "memory_limit": "99MB"}, spill_directory=str(tmp_path)) as other:
        assert not other.sql("SHOW TABLES").fetchall()


def test_a_database_has_the_threads_that_were_asked_for_only_while_it_is_used():
    limits = {"async_threads": 0, "memory_limit": "98MB"}
    with lease({**limits, "threads": 1}):
        pass
    alone = len([*_TASKS.iterdir()])
    for threads in (3, 1, 2):
        with lease({**limits, "threads": threads}) as connection:
            assert connection.sql("SELECT current_setting('threads')").fetchall() == [(threads,)]
            assert len([*_TASKS.iterdir()]) == alone + threads - 1
        assert len([*_TASKS.iterdir()]) == alone


def test_nobody_gets_a_database_that_failed():
    def fail() -> None:
        with lease({"threads": 1}) as connection:
            connection.execute("CREATE TABLE remains AS SELECT 1")
            connection.sql("SELECT CAST('a' AS INTEGER)").fetchall()

    with pytest.raises(duckdb.ConversionException):
        fail()

    with lease({"threads": 1}) as connection:
        assert not connection.sql("SHOW TABLES").fetchall()


def test_what_does_not_fit_goes_to_the_directory_for_it(tmp_path):
    with lease({"threads": 1, "memory_limit": "30MB"}, spill_directory=str(tmp_path)) as connection:
        query = "SELECT sum(b) FROM (SELECT hash(i) b FROM range(3000000) t(i) ORDER BY b)"
        connection.sql(query).fetchall()
        assert [*tmp_path.iterdir()]


def test_no_other_user_can_enter_where_rows_are_spilled(tmp_path, usual_umask):
    limits = {"threads": 1, "memory_limit": "30MB"}
    query = "SELECT sum(b) FROM (SELECT hash(i) b FROM range(3000000) t(i) ORDER BY b)"
    for _ in range(2):
        with lease(limits, spill_directory=str(tmp_path)) as connection:
            connection.sql(query).fetchall()
            assert [stat.filemode(path.stat().st_mode) for path in tmp_path.iterdir()] == [
                "drwx------"
            ]
            assert [*tmp_path.glob("*/rows")], "nothing was spilled"
        assert not [*tmp_path.iterdir()], "what has spilled is gone with its database"


def _place_of_shared_rows():
    with connect(threads=1) as connection:
        [(place,)] = connection.sql("SELECT current_setting('temp_directory')").fetchall()
    return place


def _place_of_conditions():
    duckdb_session._forget_session()
    return duckdb_session.select("SELECT current_setting('temp_directory') p")["p"][0].as_py()


@pytest.mark.parametrize("place_of", [_place_of_shared_rows, _place_of_conditions])
def test_no_other_user_can_enter_where_shared_databases_spill(
    tmp_path, usual_umask, monkeypatch, place_of
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = place_of()
    duckdb_session._forget_session()

    assert Path(place).is_relative_to(tmp_path)
    assert stat.filemode(Path(place).parent.stat().st_mode) == "drwx------"
