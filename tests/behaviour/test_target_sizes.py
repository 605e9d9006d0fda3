"""One target size per format, whoever writes: the table's property decides before the default."""

from __future__ import annotations

import pytest

import lakehand
from lakehand.sink import TableSink
from lakehand.sink.staging import write_spec
from support.formats import KITS, open_here, some_rows, tasks_inline


@pytest.fixture(params=list(KITS))
def kit(request):
    with tasks_inline():
        yield KITS[request.param]


def target_of(table):
    return table.inspect().target_file_bytes


def test_a_created_table_aims_for_the_size_that_an_opened_one_does(kit, tmp_path):
    created = lakehand.create_table(tmp_path / "t", some_rows(0).schema, format=kit.name)
    assert target_of(created) == target_of(open_here(str(tmp_path / "t")))


def spec_of(sink):
    context = sink._context
    return write_spec(context.target.in_force(context.settings))


def test_a_sink_aims_for_the_size_of_the_format(kit, tmp_path):
    path = kit.make(tmp_path / "t", files=1)
    with TableSink(path) as sink:
        assert spec_of(sink).target_file_bytes == target_of(open_here(path))


def test_what_a_caller_asks_for_is_above_the_format(kit, tmp_path):
    path = kit.make(tmp_path / "t", files=1)
    with TableSink(path, target_file_bytes="1MiB") as sink:
        assert spec_of(sink).target_file_bytes == 2**20


@pytest.mark.parametrize("way", ["append", "sink"])
def test_the_property_of_a_table_decides_how_large_new_files_are(kit, tmp_path, way):
    path, rows = str(tmp_path / "t"), some_rows(0, 20_000)
    table = lakehand.create_table(
        path, rows.schema, format=kit.name, properties={"delta.targetFileSize": "1MiB"}
    )
    if way == "append":
        table.append(rows.to_reader(1000))
    else:
        with TableSink(path) as sink:
            for batch in rows.to_batches(max_chunksize=1000):
                sink.write(batch)
    assert len(kit.files(path)) > 1
    assert kit.ids(path) == list(range(20_000))
