"""Row groups that S3 copies by itself: the same file, and every byte proved by checksums."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehand
from lakehand.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    ProofError,
    RefusedError,
    RunTakenError,
)
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.delta.write.copier import DeltaCopier
from lakehand.formats.worker import WriteSpec
from lakehand.model.work import DataFile
from lakehand.observe.steps import Step, listen
from lakehand.parquet import composed_copy
from lakehand.parquet.composed_copy import find_movable
from lakehand.parquet.row_group_copy import Source
from lakehand.prove.composed_files import check_composed
from lakehand.storage import open_store, s3_composer
from lakehand.storage.s3_composer import MovedRange
from support.compactions import compact_inline, tasks_inline
from support.crash import kill_at, run_and_kill
from support.faulty_proxy import CUT, DELAY, LOSE, run_faulty_proxy
from support.s3_server import run_s3_server
from support.server_process import free_port

pytestmark = pytest.mark.server

MIB = 2**20
ROW_BYTES = 1_024


def noise(megabytes, seed):
    """Return rows that no codec makes smaller."""
    count = int(megabytes * MIB) // ROW_BYTES
    data = np.random.default_rng(seed).bytes(count * ROW_BYTES)
    values = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(ROW_BYTES), count, [None, pa.py_buffer(data)]
    )
    return pa.table({"id": np.arange(count) + seed * 10**6, "value": values.cast(pa.binary())})


@pytest.fixture
def uri(s3_server):
    return s3_server.new_uri()


@pytest.fixture
def options(s3_server):
    return s3_server.options


def fill(uri, options, tmp_path, sizes, row_group=6.0):
    """Make a table with a file of each size in MiB, in row groups of `row_group` MiB."""
    schema = noise(0.01, 0).schema
    lakehand.create_table(uri, schema, storage_options=options)
    table = DeltaTable(open_store(uri, options))
    for number, size in enumerate(sizes):
        path = tmp_path / f"{number}.parquet"
        groups = int(row_group * MIB) // ROW_BYTES
        pq.write_table(
            noise(size, number + 1),
            path,
            row_group_size=groups,
            compression="snappy",
            use_dictionary=False,
            write_page_index=True,
        )
        table.store.upload(path, f"{number}.parquet")
    return table


def inputs(table, sizes):
    return [
        DataFile(
            path=f"{number}.parquet",
            bytes=table.store.head(f"{number}.parquet").bytes,
            rows=None,
            native={"add": {"partitionValues": {}}},
        )
        for number in range(len(sizes))
    ]


def copier(table, asked):
    context = table.worker(table.snapshot()).copier(WriteSpec(target_file_bytes=1)).context
    spec = WriteSpec(target_file_bytes=1, server_side_copy=asked)
    return DeltaCopier(context=context, spec=spec)


def rows_of(table, keys):
    return pa.concat_tables(
        pq.read_table(pa.BufferReader(table.store.get(key))) for key in keys
    ).sort_by("id")


def uploads(server, uri):
    """Return the uploads that were begun and not ended."""
    prefix = uri.removeprefix(f"s3://{server.bucket}/")
    found = server._client().list_multipart_uploads(Bucket=server.bucket, Prefix=prefix)
    return [upload["Key"] for upload in found.get("Uploads", [])]


#: Sizes of files in MiB, of their row groups, and of the target.
LAYOUTS = {
    "whole files": ((11, 12), 6, 100),
    "one large file in three": ((34,), 5.5, 12),
    "files divided between outputs": ((17, 17, 17), 5.5, 14),
    "small files among large ones": ((2, 12, 1, 1, 11, 3), 6, 100),
    "a small file first, and rests": ((0.5, 11), 11, 100),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_file_is_the_same_as_if_it_was_streamed(uri, options, tmp_path, layout):
    sizes, row_group, target = LAYOUTS[layout]
    table = fill(uri, options, tmp_path, sizes, row_group)
    files = inputs(table, sizes)

    made = {}
    for asked in ("always", "never"):
        copying = copier(table, asked).copy(files, target_file_bytes=target * MIB, stem=asked)
        with copying as copies:
            made[asked] = [file.staged.path for file in copies.files]
        if asked == "always":
            check_composed(copies.compositions, copies.moved)
            moved = sum(composed.moved_bytes for composed in copies.compositions)

    assert moved > 0.5 * sum(sizes) * MIB
    assert [table.store.get(key) for key in made["always"]] == [
        table.store.get(key) for key in made["never"]
    ]


@contextmanager
def composed(table, sizes, target=100):
    files = inputs(table, sizes)
    with copier(table, "always").copy(files, target_file_bytes=target * MIB, stem="new") as copies:
        yield copies


def compact(uri, options, **settings):
    with tasks_inline():
        return lakehand.open_table(uri, storage_options=options).compact(
            min_files=2, target_file_bytes=2**30, **settings
        )


@pytest.fixture(scope="module")
def template(s3_server):
    """Return the directory of a table of three files of 11 MiB that is worth compacting."""
    uri = s3_server.new_uri()
    options = s3_server.options
    table = lakehand.create_table(uri, noise(0.01, 1).schema, storage_options=options)
    for seed in (1, 2, 3):
        table.append(noise(11, seed))
    return folder_of(s3_server, uri)


@pytest.fixture
def table(s3_server, template, uri, options):
    shutil.copytree(template, folder_of(s3_server, uri))
    return lakehand.open_table(uri, storage_options=options)


def folder_of(server, uri):
    return server.directory / uri.removeprefix(f"s3://{server.bucket}/")


def all_rows(uri, options):
    return lakehand.open_table(uri, storage_options=options).to_arrow().sort_by("id")


def test_under_five_percent_of_the_bytes_travel(s3_server, table, uri, options):
    before = all_rows(uri, options)
    size = table.snapshot().total_bytes
    with run_faulty_proxy(s3_server.endpoint) as proxy:
        report = compact(uri, {**options, "endpoint": proxy.endpoint})

    assert proxy.bytes < 0.05 * size
    assert report.moved_in_store_bytes > 0.95 * size
    assert report.proof.kind == "checksums"
    assert report.streamed_because == ()
    assert all_rows(uri, options).equals(before)
    assert uploads(s3_server, uri) == []


def data_files(server, uri):
    return sorted(folder_of(server, uri).glob("*.parquet"))


def assert_untouched(server, uri, options, before):
    """Nothing was committed, and nothing is left."""
    table = lakehand.open_table(uri, storage_options=options)
    assert table.snapshot().file_count == 3
    assert len(data_files(server, uri)) == 3
    assert uploads(server, uri) == []
    if before is not None:
        assert table.to_arrow().sort_by("id").equals(before)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("place", [0.5, 0.1, 0.9])
def test_a_source_that_is_damaged_in_the_store_is_not_copied(s3_server, table, uri, options, place):
    path = data_files(s3_server, uri)[1]
    with path.open("r+b") as file:
        file.seek(int(place * path.stat().st_size))
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))

    with pytest.raises(ProofError, match="not composed correctly"):
        compact(uri, options)
    assert_untouched(s3_server, uri, options, None)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_file_that_was_uploaded_with_another_start_is_not_copied(
    s3_server, table, uri, options, number
):
    """The store's checksum of it is right, and its first bytes are not read."""
    store, path = open_store(uri, options), data_files(s3_server, uri)[number]
    store.put(path.name, b"PARX" + store.get(path.name)[4:])
    before = all_rows(uri, options)

    with pytest.raises(ProofError, match="not composed correctly"):
        compact(uri, options)
    assert_untouched(s3_server, uri, options, before)
    assert compact(uri, options, server_side_copy="never").files_after == 1
    assert all_rows(uri, options).equals(before)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("shift", [-1, 1, 1000])
def test_a_store_that_copies_other_bytes_is_caught(
    s3_server, table, uri, options, monkeypatch, shift
):
    before = all_rows(uri, options)
    copy = s3_composer._Upload.copy

    def copy_elsewhere(self, number, source, start, length):
        return copy(self, number, source, start + shift if start else start, length)

    monkeypatch.setattr(s3_composer._Upload, "copy", copy_elsewhere)
    with pytest.raises(ProofError, match="not composed correctly"):
        compact(uri, options)
    assert_untouched(s3_server, uri, options, before)


def test_parts_in_another_order_are_caught(s3_server, table, uri, options, monkeypatch):
    complete = s3_composer._Upload.complete
    copy = s3_composer._Upload.copy

    def swapped(self, number, source, start, length):
        return copy(self, {2: 3, 3: 2}.get(number, number), source, start, length)

    def complete_swapped(self, etags):
        complete(self, [etags[0], etags[2], etags[1], *etags[3:]])

    monkeypatch.setattr(s3_composer._Upload, "copy", swapped)
    monkeypatch.setattr(s3_composer._Upload, "complete", complete_swapped)
    with pytest.raises(ProofError, match="not composed correctly"):
        compact(uri, options)
    assert uploads(s3_server, uri) == []


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_a_source_that_changes_after_its_footer_was_read_is_refused(
    s3_server, table, template, uri, options, monkeypatch, change
):
    """The size stays the same, so only the tag tells."""
    copy = s3_composer._Upload.copy
    store = open_store(uri, options)

    def change_first(self, number, source, start, length):
        if change == "deleted":
            store.delete([source.key])
        elif store.head(source.key).etag == source.etag:
            store.put(source.key, os.urandom(source.bytes))
        return copy(self, number, source, start, length)

    monkeypatch.setattr(s3_composer._Upload, "copy", change_first)
    expected = {"replaced": ObjectChangedError, "deleted": ObjectNotFoundError}
    with pytest.raises(expected[change]) as raised:
        compact(uri, options)
    assert raised.value.path in {f"{uri}/{path.name}" for path in template.glob("*.parquet")}
    assert lakehand.open_table(uri, storage_options=options).snapshot().version == 3
    assert uploads(s3_server, uri) == []


def test_a_file_without_a_checksum_is_streamed_and_the_report_says_why(
    s3_server, table, uri, options
):
    before = all_rows(uri, options)
    for path in data_files(s3_server, uri):
        for name in os.listxattr(path):
            if "checksum" in name:
                os.removexattr(path, name)

    with pytest.raises(RefusedError, match="no CRC-64/NVME checksum"):
        compact(uri, options, server_side_copy="always")
    report = compact(uri, options)
    assert "no CRC-64/NVME checksum" in report.streamed_because[0]
    assert report.moved_in_store_bytes == 0
    assert report.proof.kind == "ranges"
    assert all_rows(uri, options).equals(before)


def test_one_file_without_a_checksum_travels_alone(s3_server, table, uri, options):
    before = all_rows(uri, options)
    path = data_files(s3_server, uri)[1]
    os.removexattr(path, next(name for name in os.listxattr(path) if "checksum" in name))
    report = compact(uri, options)
    assert 20 * MIB < report.moved_in_store_bytes < 23 * MIB
    assert all_rows(uri, options).equals(before)


def test_never_streams_and_says_nothing(table, uri, options):
    report = compact(uri, options, server_side_copy="never")
    assert (report.moved_in_store_bytes, report.streamed_because) == (0, ())
    assert report.proof.kind == "ranges"


REQUESTS = [
    ("HEAD", ".parquet"),
    ("POST", "?uploads"),
    ("PUT", "partNumber=2"),
    ("PUT", "partNumber=4"),
    ("POST", "?uploadId="),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("method", "part"), REQUESTS)
@pytest.mark.parametrize("kind", [LOSE, CUT, DELAY])
def test_every_request_may_lose_its_answer(s3_server, table, uri, options, method, part, kind):
    before = all_rows(uri, options)
    with run_faulty_proxy(s3_server.endpoint) as proxy:
        proxy.strike_once(kind, method, part)
        through = {**options, "endpoint": proxy.endpoint, "read_timeout": "1s"}
        report = compact(uri, through)

    assert len(proxy.struck) == 1
    assert report.errors == ()
    assert report.moved_in_store_bytes > 32 * MIB
    assert all_rows(uri, options).equals(before)
    assert uploads(s3_server, uri) == []


SETTINGS = {"min_files": 2, "target_file_bytes": 2**30}


def compact_and_die(uri, options):
    compact_inline(uri, "2m", options, **SETTINGS)


@kill_at(Step.UPLOAD_CREATED, Step.UPLOAD_FILLED)
def test_an_upload_of_a_killed_run_is_aborted_by_the_next(s3_server, table, uri, options, step):
    before = all_rows(uri, options)
    run_and_kill(step, compact_and_die, uri, options)
    assert len(uploads(s3_server, uri)) == 1
    assert all_rows(uri, options).equals(before)

    report = compact_inline(uri, "0s", options, **SETTINGS)
    assert report.files_after == 1
    assert all_rows(uri, options).equals(before)
    assert uploads(s3_server, uri) == []


def test_the_server_may_die_and_come_back_before_an_upload_is_completed(template, tmp_path):
    """Parts that were copied stay; requests without an answer are sent again."""
    port = free_port()
    with ExitStack() as servers:
        server = servers.enter_context(run_s3_server(tmp_path / "s3", port=port))
        uri, options = server.new_uri(), server.options
        shutil.copytree(template, folder_of(server, uri))
        before = all_rows(uri, options)
        died = []

        def restart(reached):
            if reached is Step.UPLOAD_FILLED and not died:
                died.append(server.pid)
                os.kill(server.pid, signal.SIGKILL)
                servers.enter_context(run_s3_server(tmp_path / "s3", port=port))

        listen(restart)
        try:
            report = compact(uri, {**options, "read_timeout": "2s"})
        finally:
            listen(None)
        assert died
        assert report.moved_in_store_bytes > 32 * MIB
        assert all_rows(uri, options).equals(before)
        assert uploads(server, uri) == []


def test_two_at_once_change_no_row(s3_server, table, uri, options):
    """The second one begins when the first one has composed its file, and deletes that."""
    before = all_rows(uri, options)
    describe, began = s3_composer.S3Composer.describe, []

    def describe_after_another(self, key):
        if ".zstd." not in key and not began:
            began.append(key)
            compact_inline(uri, "0s", options, **SETTINGS)
        return describe(self, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_composer.S3Composer, "describe", describe_after_another)
        with pytest.raises((RunTakenError, ObjectNotFoundError)):
            compact(uri, options)
    assert began
    assert all_rows(uri, options).equals(before)
    assert lakehand.open_table(uri, storage_options=options).snapshot().file_count == 1
    assert len(data_files(s3_server, uri)) == 4
    assert uploads(s3_server, uri) == []


def test_bytes_that_nobody_accounts_for_fail_the_proof(uri, options, tmp_path):
    table = fill(uri, options, tmp_path, (12, 12))
    with composed(table, (12, 12)) as copies:
        [composition] = copies.compositions
        check_composed([composition], copies.moved)
        without_tail = [
            replace(file, known=[known for known in file.known if not known.start])
            for file in copies.moved
        ]
        with pytest.raises(ProofError, match=r"expected|not accounted for"):
            check_composed([composition], without_tail)
        moved = next(piece for piece in composition.ranges if isinstance(piece, MovedRange))
        others = tuple(piece for piece in composition.ranges if piece is not moved)
        with pytest.raises(ProofError):
            check_composed([replace(composition, ranges=others)], copies.moved)
        stored = replace(composition.stored, crc64=composition.stored.crc64 ^ 1)
        with pytest.raises(ProofError, match="checksum"):
            check_composed([replace(composition, stored=stored)], copies.moved)


def test_files_of_another_root_and_with_gaps_travel(uri, options, tmp_path):
    sizes = (12, 12)
    table = fill(uri, options, tmp_path, sizes)
    sources = [Source.stored(table.store, f"{number}.parquet") for number in range(2)]
    elsewhere = replace(sources[0], store=open_store(uri, options))
    gap = replace(sources[0], chosen=(0,) * len(sources[0].chosen))
    with table.store.composer() as composer:
        for odd, reason in ((elsewhere, "directory"), (gap, "between")):
            with pytest.raises(composed_copy.NotComposable, match=reason):
                find_movable(composer, table.store, [odd])
            found = find_movable(composer, table.store, [odd, sources[1]])
            assert [source.movable is not None for source in found] == [False, True]


def test_ends_of_files_for_which_there_is_no_memory_are_not_held(
    uri, options, tmp_path, monkeypatch
):
    table = fill(uri, options, tmp_path, (13, 12))
    sources = [Source.stored(table.store, f"{number}.parquet") for number in range(2)]
    monkeypatch.setattr(composed_copy, "_MAX_TAILS_BYTES", composed_copy._tail_bytes(sources[0]))
    with table.store.composer() as composer:
        found = find_movable(composer, table.store, sources)
    assert [source.movable is not None for source in found] == [True, False]
