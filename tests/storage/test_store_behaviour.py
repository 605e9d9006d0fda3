"""One behaviour, every kind of store."""

from __future__ import annotations

import io
import pickle
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsafePathError,
)
from lakehand.storage import MemoryStore, Store, open_store
from support.racing import race_for_keys

if TYPE_CHECKING:
    from pathlib import Path

KINDS = [
    "local",
    "memory",
    pytest.param("s3", marks=pytest.mark.server),
    pytest.param("azure", marks=pytest.mark.server),
]
SPECIAL_KEYS = [
    "a b%20c", "é", "#", "a?b", "day=2026-01-01", "%3A", "+", ":", "100%", "a%2Fb", "[x]{y}",
    "~tilde", "back\\slash", 'quote"', "d=%25/é #?/x", "..dots", ".hidden", "_under", "日本", "a&b",
]  # fmt: skip


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(tmp_path / "table")
    if request.param == "memory":
        return MemoryStore(uuid.uuid4().hex)
    server = request.getfixturevalue(f"{request.param}_server")
    return open_store(server.new_uri(), server.options)


def fill(store: Store, names: list[str]) -> None:
    """Create empty objects, on local disk without waiting for it to be durable."""
    for name in names:
        path = store.local_path(name)
        if path is None:
            store.put(name, b"")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def keys(store: Store, prefix: str = "", *, after: str | None = None) -> list[str]:
    return [info.key for info in store.list(prefix, after=after)]


def test_an_object_is_read_as_it_was_put(store):
    store.put("a/b", b"first")
    store.put("a/b", b"second")

    assert store.get("a/b") == b"second"


def test_an_empty_object_can_be_put_and_read(store):
    store.put("empty", b"")

    assert store.get("empty") == b""
    assert store.get_tail("empty", 8) == (b"", 0)
    assert store.get_range("empty", start=0, length=4) == b""


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.get("missing"),
        lambda store: store.get_range("missing", start=0, length=1),
        lambda store: store.get_ranges("missing", [(0, 1)]),
        lambda store: store.get_tail("missing", 1),
        lambda store: store.get_many(["missing"]),
        lambda store: store.head("missing"),
        lambda store: store.open_reader("missing"),
    ],
)
def test_reading_a_missing_object_says_that_it_is_missing(store, read):
    with pytest.raises(ObjectNotFoundError, match="missing") as raised:
        read(store)

    assert raised.value.path.endswith("missing")
    assert not raised.value.retryable


def test_ranges_are_cut_at_the_end(store):
    store.put("digits", b"0123456789")

    assert store.get_range("digits", start=2, length=3) == b"234"
    assert store.get_range("digits", start=8, length=100) == b"89"
    assert store.get_range("digits", start=10, length=5) == b""
    assert store.get_range("digits", start=3, length=0) == b""


def test_many_ranges_come_back_in_the_order_asked_for(store):
    store.put("digits", b"0123456789")

    assert store.get_ranges("digits", [(7, 2), (0, 1), (4, 0), (3, 3)]) == [
        b"78",
        b"0",
        b"",
        b"345",
    ]
    assert store.get_ranges("digits", []) == []


def test_a_range_beyond_the_end_is_an_error_among_many(store):
    store.put("digits", b"0123456789")

    with pytest.raises(StorageError, match="digits"):
        store.get_ranges("digits", [(0, 1), (8, 5)])


def test_a_tail_comes_with_the_size(store):
    store.put("digits", b"0123456789")

    assert store.get_tail("digits", 4) == (b"6789", 10)
    assert store.get_tail("digits", 99) == (b"0123456789", 10)


def test_many_objects_are_read_in_the_order_asked_for(store):
    for number in range(40):
        store.put(f"n/{number}", str(number).encode())

    order = [f"n/{number}" for number in reversed(range(40))]
    assert store.get_many(order) == [key[2:].encode() for key in order]
    assert store.get_many([]) == []


def test_head_tells_size_and_time(store):
    store.put("x", b"12345")

    info = store.head("x")
    assert (info.key, info.bytes) == ("x", 5)
    assert info.modified_at.tzinfo == UTC
    assert abs(datetime.now(UTC) - info.modified_at) < timedelta(minutes=1)


def test_the_etag_changes_with_the_object(store):
    store.put("x", b"one")
    before = store.head("x").etag
    store.put("x", b"two!")

    assert store.head("x").etag != before


def test_exists_tells_objects_from_directories(store):
    store.put("a/b", b"")

    assert store.exists("a/b")
    assert not store.exists("a")
    assert not store.exists("a/b/c")


def test_a_listing_is_recursive_and_ascending_by_key(store):
    names = ["b", "a/c", "a-b", "a0", "a/b/d", "a.b/x", "a/b-c"]
    for name in names:
        store.put(name, b"x")

    assert keys(store) == sorted(names)
    assert [info.bytes for info in store.list()] == [1] * len(names)


def test_a_listing_of_a_directory_leaves_its_namesakes_out(store):
    for name in ["log/1", "log/sub/2", "log-old/3", "logs/4", "log.txt"]:
        store.put(name, b"")

    assert keys(store, "log") == ["log/1", "log/sub/2"]
    assert keys(store, "log/") == ["log/1", "log/sub/2"]


def test_a_listing_starts_after_the_key_asked_for(store):
    for name in ["log/1", "log/2", "log/2-a/x", "log/2-a/y", "log/3", "m"]:
        store.put(name, b"")

    assert keys(store, "log", after="log/2") == ["log/2-a/x", "log/2-a/y", "log/3"]
    assert keys(store, "log", after="log/2-a/x") == ["log/2-a/y", "log/3"]
    assert keys(store, "log", after="log/2.") == ["log/3"]
    assert keys(store, "log", after="log/9") == []
    assert keys(store, "log", after="a") == keys(store, "log")


def test_listing_what_is_not_there_is_empty(store):
    assert keys(store) == []
    assert keys(store, "no/such") == []
    assert store.list_directory("no/such") == ([], [])


def test_a_directory_is_listed_without_what_lies_deeper(store):
    for name in ["t/b", "t/a", "t/d=2/x", "t/d=1/x/y", "u"]:
        store.put(name, b"12")

    directories, objects = store.list_directory("t")
    assert directories == ["t/d=1", "t/d=2"]
    assert [(info.key, info.bytes) for info in objects] == [("t/a", 2), ("t/b", 2)]
    assert store.list_directory()[0] == ["t"]


@pytest.mark.parametrize("name", SPECIAL_KEYS)
def test_special_characters_are_part_of_the_key(store, name):
    if "\\" in name and store.url.startswith("az:"):
        return  # test_azure.py: it is refused there
    store.put(f"x/{name}", name.encode())
    with store.open_writer(f"w/{name}") as writer:
        writer.write(b"written")
    store.put_if_absent(f"c/{name}", b"created")

    assert store.get(f"x/{name}") == name.encode()
    assert store.get(f"w/{name}") == b"written"
    assert keys(store) == sorted([f"x/{name}", f"w/{name}", f"c/{name}"])
    assert store.delete([f"x/{name}", f"w/{name}", f"c/{name}"]) == []
    assert keys(store) == []


def test_similar_keys_are_different_objects(store):
    names = ["a b", "a%20b", "a+b", "a%2520b"]
    for name in names:
        store.put(name, name.encode())

    assert store.get_many(names) == [name.encode() for name in names]


UNSAFE_KEYS = [
    "", "/", "/etc/passwd", "a/../../b", "..", ".", "a/./b", "a//b", "a/", "a\0b", "%2e%2e/b",
    "a/%2E%2e/b", "a/..%2fb", "%252e%252e/b", "a%00b", "%2e", "a/..%5cb",
]  # fmt: skip


@pytest.mark.parametrize("key", UNSAFE_KEYS)
def test_a_key_that_could_leave_the_root_is_refused(store, key):
    for act in (store.get, store.head, store.open_reader, store.open_writer, store.local_path):
        with pytest.raises(UnsafePathError):
            act(key)
    for put in (store.put, store.put_if_absent):
        with pytest.raises(UnsafePathError):
            put(key, b"")
    with pytest.raises(UnsafePathError):
        store.delete([key])
    assert keys(store) == []


def test_put_if_absent_creates_and_never_overwrites(store):
    store.put_if_absent("log/0", b"first")

    with pytest.raises(ObjectExistsError, match="log/0"):
        store.put_if_absent("log/0", b"second")
    assert store.get("log/0") == b"first"


@pytest.mark.parametrize("store", ["local", *KINDS[2:]], indirect=True)
def test_of_eight_processes_exactly_one_creates_a_key(store):
    wanted = [f"log/{number}" for number in range(10)]

    winners = race_for_keys(store, wanted, processes=3 if store.url.startswith("az:") else 8)

    assert {key: len(numbers) for key, numbers in winners.items()} == dict.fromkeys(wanted, 1)
    assert {key: [int(store.get(key))] for key in wanted} == winners
    assert keys(store) == sorted(wanted)


@pytest.mark.parametrize("store", KINDS[1:], indirect=True)
def test_put_if_match_replaces_only_what_was_read(store):
    store.put("x", b"first")
    read = store.head("x").etag
    store.put_if_match("x", b"second", read)

    with pytest.raises(ObjectChangedError, match="x"):
        store.put_if_match("x", b"third", read)
    assert store.get("x") == b"second"
    assert store.delete(["x"]) == []
    with pytest.raises(ObjectChangedError):
        store.put_if_match("x", b"fourth", read)
    assert not store.exists("x")


def test_deleting_a_missing_key_is_no_failure(store):
    store.put("a", b"")

    assert store.delete(["a", "b", "c/d"]) == []
    assert store.delete([]) == []
    assert keys(store) == []


def test_more_keys_than_fit_into_one_request_are_deleted(store):
    # S3 deletes 1,000 objects at once, Azure 256.
    count = 300 if store.url.startswith("az:") else 1100
    doomed = [f"d/{number:05}" for number in range(count)]
    fill(store, [*doomed, "kept"])

    assert store.delete(iter(doomed)) == []
    assert keys(store) == ["kept"]


def test_a_writer_shows_its_object_only_when_closed(store):
    writer = store.open_writer("x")
    writer.write(b"abc")
    assert writer.tell() == 3
    assert not store.exists("x")

    writer.close()
    assert writer.closed
    assert store.get("x") == b"abc"


def test_a_published_object_is_there_before_its_writer_is_closed(store):
    store.put("x", b"old")
    with store.open_writer("x") as writer:
        writer.write(b"abc")
        writer.publish()
        assert store.get("x") == b"abc"
        with pytest.raises(ValueError, match="closed"):
            writer.write(b"more")
        writer.publish()

    assert writer.closed
    assert (store.get("x"), writer.tell(), keys(store)) == (b"abc", 3, ["x"])


def test_an_abort_leaves_a_published_object_where_it_is(store):
    with pytest.raises(RuntimeError, match="stop"), store.open_writer("x") as writer:  # noqa: PT012
        writer.write(b"abc")
        writer.publish()
        raise RuntimeError("stop")

    assert store.get("x") == b"abc"


def test_a_writer_of_nothing_makes_an_empty_object(store):
    store.open_writer("x").close()

    assert store.head("x").bytes == 0


def test_an_aborted_writer_leaves_what_was_there(store):
    store.put("x", b"old")
    writer = store.open_writer("x")
    writer.write(b"new")
    writer.abort()
    writer.close()

    assert store.get("x") == b"old"
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"more")


@pytest.mark.parametrize("written_bytes", [10, 20 * 2**20])
def test_an_exception_inside_with_leaves_nothing(store, written_bytes):
    with pytest.raises(RuntimeError, match="stop"), store.open_writer("d/x") as writer:  # noqa: PT012
        writer.write(bytes(written_bytes))
        raise RuntimeError("stop")

    assert keys(store) == []


def test_a_forgotten_writer_leaves_nothing(store):
    writer = store.open_writer("d/x")
    writer.write(b"abc")
    del writer

    assert keys(store) == []


@pytest.mark.parametrize("size", [8 * 2**20, 8 * 2**20 + 1, 25 * 2**20 + 3])
def test_an_object_of_many_parts_is_written_whole(store, size):
    data = pickle.PickleBuffer(bytes(range(256)) * (size // 256 + 1)).raw()[:size]
    with store.open_writer("big") as writer:
        for start in range(0, size, 3_000_001):
            writer.write(data[start : start + 3_000_001])

    assert store.head("big").bytes == size
    assert store.get("big") == data


def test_files_are_uploaded_and_downloaded(store, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 80_000)
    store.upload(source, "d/file")
    store.download("d/file", target)

    assert target.read_bytes() == source.read_bytes()


def test_a_reader_is_a_seekable_file(store):
    store.put("digits", b"0123456789")

    with store.open_reader("digits") as reader:
        assert (reader.size, reader.read(3), reader.tell()) == (10, b"012", 3)
        assert reader.seek(-2, 2) == 8
        assert reader.read() == b"89"
        assert reader.read(1) == b""
        assert reader.seek(1) + reader.seek(2, 1) == 4
    assert reader.closed


def test_a_reader_may_be_buffered(store):
    store.put("lines", b"one\ntwo\nthree")

    with io.BufferedReader(store.open_reader("lines"), 4) as lines:
        assert list(lines) == [b"one\n", b"two\n", b"three"]


def test_a_reader_cannot_go_before_the_start(store):
    store.put("x", b"123")

    with store.open_reader("x", size=3) as reader, pytest.raises(ValueError, match="seek"):
        reader.seek(-4, 2)


def test_parquet_goes_through_writer_and_reader(store):
    table = pa.table({"n": range(10_000), "s": [str(n) for n in range(10_000)]})
    with store.open_writer("t.parquet") as sink, pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)

    with store.open_reader("t.parquet") as source:
        assert pq.ParquetFile(source).read().equals(table)


def test_an_exception_while_writing_parquet_leaves_nothing(store):
    table = pa.table({"n": range(10)})
    with (  # noqa: PT012
        pytest.raises(RuntimeError, match="stop"),
        store.open_writer("t.parquet") as sink,
        pq.ParquetWriter(sink, table.schema) as writer,
    ):
        writer.write_table(table)
        raise RuntimeError("stop")

    assert keys(store) == []


def test_a_pickled_store_is_the_same_store(store):
    store.put("x", b"1")
    twin = pickle.loads(pickle.dumps(store))

    assert twin.get("x") == b"1"
    assert (type(twin), twin.url) == (type(store), store.url)
    twin.put("y", b"2")
    assert store.get("y") == b"2"


def test_a_relative_path_of_a_log_stays_in_the_store(store):
    assert store.resolve("d=a%20b/x") == (store, "d=a%20b/x")
    with pytest.raises(UnsafePathError):
        store.resolve("../x")
