"""Stores without conditional writes: objects are put by entries in PostgreSQL."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import (
    CommitUnknownError,
    ConditionalPutError,
    ObjectExistsError,
    StoreUnreachableError,
    ValidationError,
)
from lakehand.storage import open_store
from lakehand.storage.commit_entries import Entry, GuardedBackend
from lakehand.storage.locking import PostgresqlEntries
from support.commit_races import SCHEMA, race
from support.odd_s3 import run_odd_server
from support.racing import race_for_keys

pytestmark = pytest.mark.server
IDS = pa.schema([("id", pa.int64())])
ENTRY = Entry(table="s3://lake/t", name=f"{7:020}.json", temporary=".tmp/a")


@pytest.fixture(scope="module")
def url(postgresql):
    return f"postgresql:///postgres?host={postgresql.directory}&user=lakehand"


@pytest.fixture(autouse=True)
def _writers_are_dead(monkeypatch):
    """Wait for no writer: those that are waited for here are dead or in this process."""
    monkeypatch.setattr("lakehand.storage.commit_entries._OWNER_SECONDS", 0.0)


@pytest.fixture
def options(s3_server, url):
    """Options of a store that is told to do without conditions."""
    locking = {"locking_provider": "postgresql", "locking_url": url}
    return {**s3_server.options, "conditional_put": "disabled", **locking}


@pytest.fixture
def store(s3_server, options):
    return open_store(s3_server.new_uri(), options)


def version_key(version):
    return f"log/{version:020}.json"


def test_without_a_provider_such_a_store_is_refused(s3_server, options):
    plain = {k: v for k, v in options.items() if not k.startswith("locking_")}

    with pytest.raises(ConditionalPutError):
        open_store(s3_server.new_uri(), plain).put_if_absent(version_key(0), b"")


def test_a_version_is_put_once(store):
    store.put_if_absent(version_key(0), b"first")

    with pytest.raises(ObjectExistsError):
        store.put_if_absent(version_key(0), b"second")
    assert store.get(version_key(0)) == b"first"
    assert [info.key for info in store.list()] == [version_key(0)]


def test_other_objects_can_be_put_again_after_they_were_deleted(store):
    store.put_if_absent("pins/a", b"first")
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("pins/a", b"second")
    assert store.delete(["pins/a"]) == []

    store.put_if_absent("pins/a", b"third")
    assert store.get("pins/a") == b"third"


def test_of_processes_exactly_one_puts_a_version(store):
    wanted = [version_key(version) for version in range(8)]

    winners = race_for_keys(store, wanted, processes=4)

    assert {key: len(numbers) for key, numbers in winners.items()} == dict.fromkeys(wanted, 1)
    assert {key: [int(store.get(key))] for key in wanted} == winners


def test_writers_that_begin_at_the_same_moment_share_the_new_table_of_entries(url):
    """PostgreSQL lets IF NOT EXISTS fail for all but one of them."""
    psycopg = pytest.importorskip("psycopg")
    for _ in range(10):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS lakehand_commit_entries")
        together = threading.Barrier(6)

        def first_use(_number, together=together):
            entries = PostgresqlEntries(url)
            together.wait()
            return entries.latest("s3://lake/new")

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(first_use, range(6))) == [None] * 6


def test_of_commits_that_race_none_is_lost(s3_server, options):
    uri = s3_server.new_uri()
    lakehand.create_table(uri, SCHEMA, storage_options=options)

    attempts = race(uri, options, writers=3, commits=5)

    won = [attempt for attempt in attempts if attempt.version]
    assert sorted(attempt.version for attempt in won) == list(range(1, len(won) + 1))
    files = {a.path for a in won if not a.is_removal} - {a.path for a in won if a.is_removal}
    snapshot = lakehand.open_table(uri, storage_options=options).snapshot()
    assert set(snapshot.files["path"].to_pylist()) == files


def test_a_writer_that_slept_puts_what_was_decided(store, monkeypatch):
    """It claims a version and sleeps; another writer finishes, and commits the next two."""
    create = GuardedBackend._create

    def sleep(backend, key, data):
        monkeypatch.undo()
        other = pickle.loads(pickle.dumps(store))
        other.finish_puts("log")
        other.put_if_absent(version_key(1), b"next")
        create(backend, key, data)

    monkeypatch.setattr(GuardedBackend, "_create", sleep)
    store.put_if_absent(version_key(0), b"first")  # it won: its content is version 0

    assert [store.get(version_key(version)) for version in (0, 1)] == [b"first", b"next"]


def lose_one_answer(monkeypatch, owner, name, *, after):
    """Let one call of a method fail before it does anything, or after it has done it."""
    real, lost = getattr(owner, name), []

    def call(*args):
        is_first = not lost
        lost.append(name)
        if is_first and not after:
            raise StoreUnreachableError("no answer", operation="put")
        result = real(*args)
        if is_first:
            raise StoreUnreachableError("no answer", operation="put")
        return result

    monkeypatch.setattr(owner, name, call)
    return lost


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (PostgresqlEntries, "insert"),
        (GuardedBackend, "_create"),
        (PostgresqlEntries, "complete"),
    ],
    ids=["insert", "copy", "mark"],
)
def test_rows_are_there_once_if_an_answer_is_lost(
    s3_server, options, monkeypatch, owner, name, after
):
    table = lakehand.create_table(s3_server.new_uri(), IDS, storage_options=options)
    table.append(pa.table({"id": [1]}))
    lost = lose_one_answer(monkeypatch, owner, name, after=after)
    try:
        table.append(pa.table({"id": [2]}))
        expected = [1, 2]
    except CommitUnknownError:
        expected = None  # It may be there, once.
    assert lost
    table.append(pa.table({"id": [3]}))

    found = sorted(
        lakehand.open_table(table.url, storage_options=options).to_arrow()["id"].to_pylist()
    )
    assert found == [*expected, 3] if expected else found in ([1, 2, 3], [1, 3])


def test_a_writer_that_is_at_work_is_left_to_finish(store, monkeypatch, caplog):
    """delta-rs would commit again what another writer copied for it."""
    monkeypatch.setattr("lakehand.storage.commit_entries._OWNER_SECONDS", 60.0)
    create = GuardedBackend._create
    other = pickle.loads(pickle.dumps(store))
    reader = threading.Thread(target=other.finish_puts, args=("log",))

    def work(backend, key, data):
        reader.start()
        reader.join(timeout=0.5)
        assert reader.is_alive()
        assert not store.exists(key)
        create(backend, key, data)

    monkeypatch.setattr(GuardedBackend, "_create", work)
    store.put_if_absent(version_key(0), b"first")
    reader.join(timeout=60)

    assert (reader.is_alive(), store.get(version_key(0))) == (False, b"first")
    assert "half done" not in caplog.text


def test_a_store_that_ignores_conditions_is_found_out(url):
    with run_odd_server() as odd:
        del odd.options["conditional_put"]
        locking = {"locking_provider": "postgresql", "locking_url": url}
        store = open_store(f"s3://lake/{id(odd)}", {**odd.options, **locking})
        store.put_if_absent(version_key(0), b"first")
        with pytest.raises(ObjectExistsError):
            store.put_if_absent(version_key(0), b"second")
        assert store.get(version_key(0)) == b"first"


def test_an_entry_is_inserted_once_and_changes_only_if_it_is_the_same(url):
    entries, table = PostgresqlEntries(url), "s3://lake/contract"
    first = Entry(table=table, name="a", temporary=".tmp/1")
    second = Entry(table=table, name="a", temporary=".tmp/2")
    assert (entries.insert(first), entries.insert(second)) == (True, False)
    assert (entries.find(table, "a"), entries.find(table, "b")) == (first, None)
    entries.complete(second)
    assert entries.latest(table) == first
    entries.complete(first)
    assert entries.latest(table).is_complete
    assert (entries.replace(second, first), entries.replace(first, second)) == (False, True)
    assert entries.find(table, "a") == second


def test_a_database_that_does_not_answer_is_named_without_its_password():
    entries = PostgresqlEntries("postgresql://user:hush-hush@127.0.0.1:1/x")

    with pytest.raises(StoreUnreachableError, match="PostgreSQL") as raised:
        entries.insert(ENTRY)
    assert "hush-hush" not in f"{raised.value!r} {entries!r} {raised.value.__cause__!r}"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"locking_provider": "redis"}, "locking_provider"),
        ({"locking_provider": "postgresql"}, "locking_url"),
        ({"locking_provider": "dynamodb", "locking_url": "x"}, "locking_url"),
    ],
)
def test_an_option_without_meaning_is_refused_by_name(s3_server, given, field):
    with pytest.raises(ValidationError) as raised:
        open_store(s3_server.new_uri(), {**s3_server.options, **given})
    assert raised.value.field == field
