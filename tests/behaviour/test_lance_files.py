"""Lance files of every format, with and without blobs: right rows, or refused by name."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lakehand.errors import RefusedError
from lakehand.formats.lance.table import LanceTable
from lakehand.observe.clock import ManualClock
from lakehand.retention.vacuum import vacuum
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.formats import open_here, tasks_inline

BLOB = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
KINDS = {
    "plain": pa.field("payload", pa.large_binary()),
    "blobs": pa.field("payload", pa.large_binary(), metadata=BLOB.metadata),
    "blobs within": pa.field("payload", pa.struct([BLOB])),
}
#: Lance's first format has no blobs.
FILES = [
    ("legacy", "plain"),
    *((version, kind) for version in ("2.0", "2.1", "2.2") for kind in KINDS),
]


def rows(kind, numbers):
    """Return rows whose payloads follow from their numbers: some null, some empty, some long."""
    lengths = {0: None, 1: 0}
    sizes = [lengths.get(number % 5, 3_000 * (number % 5)) for number in numbers]
    payloads = [
        None if size is None else bytes([number]) * size
        for number, size in zip(numbers, sizes, strict=True)
    ]
    if kind == "blobs within":
        payloads = [{"blob": payload} for payload in payloads]
    schema = pa.schema([pa.field("id", pa.int64()), KINDS[kind]])
    return pa.table([pa.array(numbers), pa.array(payloads, KINDS[kind].type)], schema=schema)


@pytest.fixture(params=FILES, ids=lambda files: f"{files[0]}-{files[1]}")
def files(request):
    return request.param


@pytest.fixture
def path(tmp_path, files):
    """Return the place of a table in which each of 40 numbers is twice."""
    version, kind = files
    for start in (0, 20, 0, 20):
        some = rows(kind, range(start, start + 20))
        lance.write_dataset(some, tmp_path / "t", mode="append", data_storage_version=version)
    return str(tmp_path / "t")


def contents(path):
    scanner = lance.dataset(path).scanner(blob_handling="all_binary")
    return sorted(scanner.to_table().to_pylist(), key=repr)


def test_files_are_joined_and_rows_go_and_payloads_stay_with_their_rows(path):
    # Lance's first format reads an empty payload as null.
    every, table = contents(path)[::2], open_here(path)
    left = [row for row in every if not 10 <= row["id"] < 15]
    with tasks_inline():
        assert table.compact().proof.rows == 80
        by_key = table.deduplicate(key=["id"], keep="last", dry_run=True)
        exact = table.deduplicate(exact=True)
        assert (by_key.duplicates_removed, exact.duplicates_removed) == (40, 40)
        assert contents(path) == every
        table.delete(where="id >= 10 AND id < 15")
        assert contents(path) == left

        assert table.compact().proof.rows == 35

        assert table.verify(deep=True).outcome == "sound"
        assert table.vacuum(grace=timedelta(0)).errors == ()
    assert (contents(path), len(lance.dataset(path).get_fragments())) == (left, 1)


@pytest.mark.parametrize("verb", ["cluster", "append"])
def test_what_lance_alone_can_write_is_refused_by_name(path, files, verb):
    version, kind = files
    before, table = contents(path), open_here(path)
    work = {
        "cluster": lambda: table.cluster(by="id"),
        "append": lambda: table.append(rows(kind, [77])),
    }
    if kind == "plain" and version != "legacy":
        with tasks_inline():
            work[verb]()
        added = rows(kind, [77]).to_pylist() if verb == "append" else []
        assert contents(path) == sorted(before + added, key=repr)
        return
    named = "first format" if version == "legacy" else "payloads of payload are written by Lance"
    with tasks_inline(), pytest.raises(RefusedError, match=named):
        work[verb]()
    assert contents(path) == before


@pytest.fixture
def long_payloads(tmp_path):
    """Return a table of files 2.2: long payloads lie beside them, and no manifest names those."""
    path, schema = tmp_path / "t", pa.schema([pa.field("id", pa.int64()), KINDS["blobs"]])
    for number in range(4):
        some = pa.table([[number], [bytes([number]) * 200_000]], schema=schema)
        lance.write_dataset(some, path, mode="append", data_storage_version="2.2")
    return path


def payloads_of(path):
    """Return the one file with the payloads of a table of one fragment."""
    (fragment,) = lance.dataset(path).get_fragments()
    (payloads,) = (path / "data" / Path(fragment.metadata.files[0].path).stem).iterdir()
    return payloads


def test_long_payloads_are_made_durable_and_missed(long_payloads, monkeypatch):
    path, synced, sync = long_payloads, set(), os.fsync

    def note(descriptor):
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with tasks_inline():
        assert open_here(path).compact().proof.kind == "digest"
    payloads = payloads_of(path)
    assert {payloads, payloads.parent, payloads.parent.parent} <= synced

    payloads.unlink()

    assert open_here(path).verify(deep=True).outcome != "sound"


@pytest.mark.parametrize("days", [3, 30])
def test_vacuum_takes_long_payloads_with_the_files_that_they_belong_to(long_payloads, days):
    path, before = long_payloads, contents(long_payloads)
    with tasks_inline():
        open_here(path).compact()
    stored = set(path.rglob("*.blob"))
    clock = ManualClock(datetime.now(UTC) + timedelta(days=days))

    settings = Settings({"grace": "0"}, environment={})
    vacuum(LanceTable(open_store(path)), settings=settings, clock=clock)

    assert set(path.rglob("*.blob")) == (stored if days == 3 else {payloads_of(path)})
    assert contents(path) == before


def test_vacuum_leaves_long_payloads_of_a_tagged_version_before_an_overwrite(long_payloads):
    path, before = long_payloads, contents(long_payloads)
    lance.dataset(path).tags.create("kept", lance.dataset(path).version)
    # Versions of one table may have files of different formats.
    new = pa.table({"id": [9]})
    lance.write_dataset(new, path, mode="overwrite", data_storage_version="2.0")
    stored = set(path.rglob("*.blob"))
    clock = ManualClock(datetime.now(UTC) + timedelta(days=30))

    settings = Settings({"grace": "0"}, environment={})
    vacuum(LanceTable(open_store(path)), settings=settings, clock=clock)

    assert set(path.rglob("*.blob")) == stored
    scanner = lance.dataset(path, version="kept").scanner(blob_handling="all_binary")
    assert sorted(scanner.to_table().to_pylist(), key=repr) == before
