from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lakehand.errors import CorruptFileError
from lakehand.formats.delta.checkpoints.checkpoint_rows import checkpoint_schema, file_rows
from lakehand.formats.delta.checkpoints.files import (
    count_actions,
    verify_actions,
    write_json,
    write_parquet,
)
from lakehand.storage import MemoryStore, open_store

SCHEMA = checkpoint_schema(
    statistics_json=True, statistics_struct=None, partition_struct=pa.struct([])
)
KEY = "_delta_log/00000000000000000003.checkpoint.parquet"


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path):
    return open_store(tmp_path) if request.param == "disk" else MemoryStore(tmp_path.name)


def adds(*paths):
    return file_rows("add", pa.table({"path": list(paths)}), SCHEMA)


def test_what_was_written_is_counted_by_kind(store):
    removes = file_rows("remove", pa.table({"path": ["c"]}), SCHEMA)

    written = write_parquet(store, KEY, [adds("a", "b"), removes], SCHEMA)

    assert written.counts == {"add": 2, "remove": 1}
    assert count_actions(store, KEY) == written
    assert written.bytes == store.head(KEY).bytes


def test_lines_are_counted_by_kind(store):
    written = write_json(store, "_delta_log/x.json", [("txn", {"appId": "é"}), ("txn", {})])

    assert count_actions(store, written.key) == written
    assert written.counts == {"txn": 2}


def test_a_failure_on_the_way_leaves_nothing_under_the_name(store):
    def rows():
        yield adds("a")
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_parquet(store, KEY, rows(), SCHEMA)

    assert not store.exists(KEY)


def test_a_file_that_reads_back_differently_is_deleted(store):
    written = write_parquet(store, KEY, [adds("a", "b")], SCHEMA)

    with pytest.raises(CorruptFileError, match="reads back as"):
        verify_actions(store, replace(written, counts={"add": 3}))

    assert not store.exists(KEY)


def test_a_checkpoint_that_another_writer_put_there_meanwhile_is_left_alone(store):
    written = write_parquet(store, KEY, [adds("a", "b")], SCHEMA)

    verify_actions(store, replace(written, bytes=1, counts={"add": 2, "remove": 7}))

    assert store.exists(KEY)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:-4],
        lambda data: b"XXXX" + data[4:],
        lambda data: data[:4] + bytes(len(data) - 8) + data[-4:],
    ],
    ids=["empty", "start", "without-end", "without-start", "zeroed"],
)
def test_damage_is_an_error_that_names_the_file(store, damage):
    write_parquet(store, KEY, [adds("a")], SCHEMA)
    store.put(KEY, damage(store.get(KEY)))

    with pytest.raises(CorruptFileError, match=r"00000000000000000003\.checkpoint") as caught:
        count_actions(store, KEY)

    assert caught.value.attributes["path"] == KEY


def test_lines_that_are_cut_off_are_damage(store):
    store.put("_delta_log/x.json", b'{"protocol":{}}\n{"metaD')

    with pytest.raises(CorruptFileError):
        count_actions(store, "_delta_log/x.json")
