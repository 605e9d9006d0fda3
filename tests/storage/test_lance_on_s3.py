"""Lance tables in an object store: opened, proved and cleaned with the options of lakehand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import lance
import pyarrow as pa
import pytest

import lakehand
from lakehand.formats.lance.table import LanceTable
from lakehand.observe.clock import ManualClock
from lakehand.retention.vacuum import vacuum
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.compactions import tasks_inline
from support.deduplications import tasks_inline as row_tasks_inline
from support.lance_tables import some_rows


@pytest.fixture
def place(s3_server):
    """Return the URL of a table of four fragments, and how to connect."""
    url, options = s3_server.new_uri(), s3_server.options
    for number in range(4):
        rows, mode = some_rows(number * 10, 10), "append" if number else "create"
        lance.write_dataset(rows, url, mode=mode, storage_options=options)
    return url, options


def test_a_table_on_s3_is_compacted_proved_and_read(place):
    url, options = place
    table = lakehand.open_table(url, storage_options=options)
    with tasks_inline():
        report = table.compact()

    dataset = lance.dataset(url, storage_options=options)
    assert (report.proof.rows, len(dataset.get_fragments())) == (40, 1)
    assert dataset.to_table(columns=["id"])["id"].to_pylist() == list(range(40))
    assert table.to_arrow(columns=["id"], where="id > 37")["id"].to_pylist() == [38, 39]


def test_rows_on_s3_are_put_in_order(place):
    url, options = place
    with tasks_inline():
        lakehand.open_table(url, storage_options=options).compact(sort_by="id DESC")

    dataset = lance.dataset(url, storage_options=options)
    assert dataset.to_table(columns=["id"])["id"].to_pylist() == list(range(39, -1, -1))


def test_rows_on_s3_are_appended_deduplicated_and_deleted(place):
    url, options = place
    table = lakehand.open_table(url, storage_options=options, engine="local")
    with row_tasks_inline():
        table.append(some_rows(38, 4), writer_id="w", epoch=1)
        assert table.deduplicate(key=["id"]).duplicates_removed == 2
        assert table.delete(where="id % 2 = 1").proof.kind == "digest"

    dataset = lance.dataset(url, storage_options=options)
    assert dataset.to_table(columns=["id"])["id"].to_pylist() == list(range(0, 42, 2))
    assert table.transactions() == {"w": 1}
    assert not list(open_store(url, options).list("_lakehand/clones"))


def test_a_table_on_s3_is_vacuumed_and_verified(place):
    url, options = place
    table = lakehand.open_table(url, storage_options=options, engine="local")
    with tasks_inline():
        table.compact()
    assert table.vacuum(dry_run=True).kept.young > 4
    assert table.verify().outcome == "sound"


def test_rows_on_s3_are_replaced_and_bring_columns(place):
    url, options = place
    table = lakehand.open_table(url, storage_options=options, engine="local")
    with row_tasks_inline():
        table.upsert(some_rows(38, 4), key=["id"])
        more = some_rows(50, 1).append_column("more", pa.array(["m"]))
        table.append(more, schema_evolution=True)

    found = lance.dataset(url, storage_options=options).to_table(columns=["id", "more"])
    assert sorted(found["id"].to_pylist()) == [*range(42), 50]
    assert set(found["more"].to_pylist()) == {None, "m"}


def test_a_table_on_s3_with_a_branch_is_vacuumed(place):
    url, options = place
    dataset = lance.dataset(url, storage_options=options)
    dataset.create_branch("dev", 2)
    with tasks_inline():
        lakehand.open_table(url, storage_options=options).compact()
    clock = ManualClock(datetime.now(UTC) + timedelta(days=30))
    settings = Settings({"grace": "0"}, environment={})
    report = vacuum(LanceTable(open_store(url, options)), settings=settings, clock=clock)

    dataset = lance.dataset(url, storage_options=options)
    assert (report.files_deleted > 0, dataset.count_rows()) == (True, 40)
    assert dataset.checkout_version(("dev", None)).to_table().num_rows == 20
