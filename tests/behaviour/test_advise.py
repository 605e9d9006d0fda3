"""`advise`: the order that a workload needs comes first, with the share of files that it skips."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakehand
from lakehand.cli.main import run
from lakehand.errors import RefusedError
from support.ordered_tables import table_of_files

ROWS = 20_000
KIB = 1024


def _rows(random, rows=ROWS):
    return pa.table(
        {
            "id": np.arange(rows),
            "device": random.integers(0, 500, rows),
            "day": random.integers(0, 365, rows),
            "amount": random.random(rows),
            "region": pa.array(random.choice(["eu", "us", "ap"], rows)),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Rows without any order in ten files; `id` alone ascends."""
    whole = _rows(np.random.default_rng(3))
    parts = [whole.slice(start, ROWS // 10) for start in range(0, ROWS, ROWS // 10)]
    return table_of_files(tmp_path_factory.mktemp("advise") / "events", *parts)


def _advise(table, queries=None, **settings):
    opened = lakehand.open_table(table)
    return opened.advise(queries=queries, **{"target_file_bytes": 8 * KIB, **settings})


def _workload(seed=7):
    random = np.random.default_rng(seed)
    both = [
        f"SELECT 1 FROM events WHERE device = {device} AND day BETWEEN {day} AND {day + 9};"
        for device, day in random.integers(0, 350, (10, 2))
    ]
    device = [
        f"SELECT 1 FROM events WHERE device = {number};" for number in random.integers(0, 500, 5)
    ]
    day = [f"SELECT 1 FROM events WHERE day > {number};" for number in random.integers(300, 360, 5)]
    return "\n".join([*both, *device, *day, "SELECT 1 FROM events WHERE amount > 0.5;"])


@pytest.fixture(scope="module")
def advice(table):
    return _advise(table, _workload())


def test_the_pair_that_a_workload_asks_for_comes_first(advice):
    best = advice.proposals[0]
    assert advice.verdict == "cluster"
    assert set(best.columns) == {"device", "day"}
    assert best.skip_rate > 0.7
    assert advice.skip_rate < 0.1
    assert {each.column for each in advice.columns[:2]} == {"device", "day"}


def test_a_proposal_skips_about_as_much_as_it_promises(advice, table, tmp_path):
    promised = advice.proposals[0]
    rows = lakehand.open_table(table).to_arrow()
    copy = lakehand.open_table(table_of_files(tmp_path / "events", rows))

    copy.cluster(
        by=list(promised.columns), curve=promised.curve, target_file_bytes=8 * KIB, engine="local"
    )

    measured = _advise(copy.url, _workload()).skip_rate
    assert measured == pytest.approx(promised.skip_rate, abs=0.1)


def test_one_column_is_proposed_where_one_is_asked_for(table):
    advice = _advise(table, "SELECT 1 FROM events WHERE amount BETWEEN 0.5 AND 0.51;")

    assert advice.proposals[0].columns == ("amount",)


def test_what_is_asked_often_decides(table):
    often = "SELECT 1 FROM events WHERE device = 17;\n" * 50
    advice = _advise(table, often + "SELECT 1 FROM events WHERE amount > 0.99;")

    assert advice.columns[0].column == "device"
    assert advice.columns[0].asked == pytest.approx(50 / 51)


def test_without_queries_all_columns_are_asked_alike(table):
    advice = _advise(table)

    assert advice.questions == "fixed"
    assert advice.question_count == 30 * 5 + 30 * 10
    assert advice.verdict == "cluster"


def test_a_table_in_the_order_it_is_asked_for_is_left_alone(table):
    advice = _advise(
        table, "SELECT 1 FROM events WHERE id BETWEEN 40 AND 50;", target_file_bytes="40KiB"
    )

    assert advice.verdict == "already_good"
    assert advice.skip_rate == pytest.approx(0.9)


def test_a_table_of_one_file_has_nothing_to_skip(table):
    advice = _advise(table, target_file_bytes="128MiB")

    assert (advice.verdict, advice.proposals) == ("too_small", ())


def test_queries_about_nothing_give_no_advice(table):
    advice = _advise(table, "SELECT * FROM events; SELECT * FROM a JOIN b USING (c);")

    assert advice.verdict == "nothing_to_order"
    assert advice.unused_statements == {
        "without a condition on a column": 1,
        "about other tables": 1,
    }


def test_an_empty_table_gets_an_answer(tmp_path):
    schema = pa.schema({"a": pa.int64()})
    empty = lakehand.create_table(tmp_path / "empty", schema)

    assert empty.advise().verdict == "too_small"


def test_rows_of_different_partitions_share_no_file(tmp_path):
    write_deltalake(str(tmp_path / "t"), _rows(np.random.default_rng(4)), partition_by=["region"])
    queries = "SELECT 1 FROM t WHERE region = 'eu' AND device = 4;"

    advice = _advise(tmp_path / "t", queries)

    assert advice.skip_rate == pytest.approx(2 / 3)
    assert advice.proposals[0].columns == ("device",)
    assert advice.proposals[0].skip_rate > 0.95


def test_files_without_statistics_are_named_as_the_first_thing_to_mend(tmp_path):
    without = {"delta.dataSkippingNumIndexedCols": "0"}
    rows = _rows(np.random.default_rng(5), rows=2_000)
    write_deltalake(str(tmp_path / "t"), rows, configuration=without)

    advice = _advise(tmp_path / "t", "SELECT 1 FROM t WHERE device = 4;", target_file_bytes="4KiB")

    assert advice.skip_rate == 0
    assert "1 file without statistics" in advice.message


def test_a_format_without_statistics_has_nothing_to_skip_by(tmp_path):
    lance = pytest.importorskip("lance")
    lance.write_dataset(pa.table({"a": [1, 2, 3]}), str(tmp_path / "t.lance"))

    with pytest.raises(RefusedError, match="keeps no statistics"):
        lakehand.open_table(tmp_path / "t.lance").advise()


def test_the_command_shows_proposals_and_documents_them(table, tmp_path, capsys):
    queries = tmp_path / "queries.sql"
    queries.write_text(_workload())
    arguments = ["advise", str(table), "--queries", str(queries), "--target-file-size", "8KiB"]

    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["proposals"][0]["curve"] in {"hilbert", "zorder", "linear"}
    assert document["questions"] == "queries"

    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert "lakehand cluster" in shown
    assert "--by" in shown
