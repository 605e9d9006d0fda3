"""Commits through DynamoDB, together with delta-rs, which speaks the entries of delta-spark."""

from __future__ import annotations

import logging
import os
import signal
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import CommitUnknownError, LakehandError, RefusedError, StorageError
from lakehand.formats.delta.log.listing import list_commits
from lakehand.observe.steps import Step
from lakehand.storage import open_store
from support.append_races import DELTA_RS, append_all, begin, end, start_writer
from support.crash import kill_at, run_and_kill

pytestmark = pytest.mark.server
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def entries(dynamodb_server):
    """The name of a table of entries."""
    return dynamodb_server.new_table()


@pytest.fixture
def options(s3_server, dynamodb_server, entries):
    return {**s3_server.options, **dynamodb_server.options(entries)}


@pytest.fixture
def uri(s3_server, options):
    uri = s3_server.new_uri()
    lakehand.create_table(uri, SCHEMA, storage_options=options)
    return uri


@pytest.fixture(autouse=True)
def _writers_are_dead(monkeypatch):
    """Wait for no writer: those that are waited for here are dead or in this process."""
    monkeypatch.setattr("lakehand.storage.commit_entries._OWNER_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _delta_rs():
    if not DELTA_RS.exists():
        pytest.fail(f"{DELTA_RS} is missing; scripts/install-delta-rs-with-dynamodb installs it")


def append(uri: str, options: dict[str, str], number: int) -> None:
    table = lakehand.open_table(uri, storage_options=options)
    table.append(pa.table({"id": pa.array([number], pa.int64())}))


def ids(uri, options):
    return sorted(lakehand.open_table(uri, storage_options=options).to_arrow()["id"].to_pylist())


def test_an_entry_is_as_delta_spark_writes_it(uri, options, dynamodb_server, entries):
    append(uri, options, 1)

    items = dynamodb_server.client.scan(TableName=entries)["Items"]
    assert len(items) == 2
    for version, item in enumerate(sorted(items, key=lambda item: item["fileName"]["S"])):
        name = f"{version:020}.json"
        assert (item["tablePath"], item["fileName"]) == ({"S": uri}, {"S": name})
        assert item["tempPath"]["S"].startswith(f".tmp/{name}.")
        assert item["complete"] == {"S": "true"}
        assert int(item["expireTime"]["N"]) > 1_700_000_000
    left = [info.key for info in open_store(uri, options).list("_delta_log")]
    assert left == [f"_delta_log/{version:020}.json" for version in (0, 1)]


def test_lakehand_and_delta_rs_commit_in_turn(uri, options, dynamodb_server, entries):
    append(uri, options, 1)
    append_all("delta-rs", uri, options, [2, 3])
    append(uri, options, 4)

    assert ids(uri, options) == [1, 2, 3, 4]
    assert [entry["complete"] for entry in dynamodb_server.entries(entries)] == ["true"] * 5


def race(uri, options, *, writers, commits):
    """Let as many writers of each kind append at once; return the ids that they report."""
    kinds = ["lakehand", "delta-rs"] * (writers // 2)
    parts = [range(n * commits, (n + 1) * commits) for n in range(writers)]
    processes = [
        start_writer(kind, uri, options, part) for kind, part in zip(kinds, parts, strict=True)
    ]
    end([begin(process) for process in processes])
    return list(range(writers * commits))


@pytest.mark.parametrize(
    ("writers", "commits"), [(4, 4), pytest.param(8, 50, marks=pytest.mark.soak)]
)
def test_of_racing_writers_of_both_kinds_no_commit_is_lost(
    uri, options, dynamodb_server, entries, writers, commits
):
    expected = race(uri, options, writers=writers, commits=commits)

    assert ids(uri, options) == expected
    store = open_store(uri, options)
    assert list_commits(store, -1) == tuple(range(writers * commits + 1))
    assert {entry["complete"] for entry in dynamodb_server.entries(entries)} == {"true"}


@kill_at(Step.ENTRY_PREPARED, Step.ENTRY_INSERTED)
def test_what_a_killed_lakehand_left_is_finished_by_delta_rs(uri, options, step):
    run_and_kill(step, append, uri, options, 1)

    append_all("delta-rs", uri, options, [2])

    assert ids(uri, options) == ([2] if step is Step.ENTRY_PREPARED else [1, 2])


def test_what_a_killed_lakehand_left_is_finished_by_the_next_reader(
    uri, options, s3_server, dynamodb_server, entries
):
    run_and_kill(Step.ENTRY_INSERTED, append, uri, options, 1)
    unguarded = {name: value for name, value in options.items() if name in s3_server.options}
    assert ids(uri, unguarded) == []

    assert ids(uri, options) == [1]
    assert dynamodb_server.entries(entries)[-1]["complete"] == "true"


@contextmanager
def killing_after_insert(endpoint):
    """Forward requests to DynamoDB; kill a process before it hears that its entry is inserted."""
    victim = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = urllib.request.Request(endpoint, data=body, headers=dict(self.headers))
            with urllib.request.urlopen(request, timeout=30) as answer:
                said = answer.read()
            if self.headers["x-amz-target"].endswith("PutItem"):
                os.kill(victim["pid"], signal.SIGKILL)
                return
            self.send_response(200)
            self.send_header("content-type", "application/x-amz-json-1.0")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", victim
        server.shutdown()


def test_what_a_killed_delta_rs_left_is_finished_by_lakehand(
    uri, options, dynamodb_server, entries
):
    with killing_after_insert(dynamodb_server.endpoint) as (endpoint, victim):
        writer = start_writer("delta-rs", uri, {**options, "locking_endpoint": endpoint}, [1])
        victim["pid"] = writer.pid
        begin(writer).communicate(timeout=200)
    assert writer.returncode == -signal.SIGKILL
    assert dynamodb_server.entries(entries)[-1]["complete"] == "false"

    append(uri, options, 2)

    assert ids(uri, options) == [1, 2]
    assert {entry["complete"] for entry in dynamodb_server.entries(entries)} == {"true"}


def test_a_writer_without_entries_is_named_and_nothing_is_overwritten(
    uri, options, s3_server, monkeypatch, caplog
):
    """The other writer comes between the look whether the version is free and the entry."""
    from lakehand.storage.commit_entries import GuardedBackend

    claim = GuardedBackend._claim
    unguarded = {name: value for name, value in options.items() if name in s3_server.options}

    def meet(backend, entry, key):
        monkeypatch.undo()
        append(uri, unguarded, 1)
        return claim(backend, entry, key)

    monkeypatch.setattr(GuardedBackend, "_claim", meet)
    with caplog.at_level(logging.WARNING, "lakehand"):
        append(uri, options, 2)

    assert "does not use the table of commits" in caplog.text
    assert ids(uri, options) == [1, 2]


def test_the_spelling_of_other_writers_is_kept(uri, options, dynamodb_server, entries):
    client, other = dynamodb_server.client, uri.replace("s3:", "s3a:")
    [entry] = client.scan(TableName=entries)["Items"]
    key = {name: entry[name] for name in ("tablePath", "fileName")}
    client.delete_item(TableName=entries, Key=key)
    client.put_item(TableName=entries, Item={**entry, "tablePath": {"S": other}})

    append(uri, options, 1)
    assert {found["tablePath"] for found in dynamodb_server.entries(entries)} == {other}

    client.put_item(TableName=entries, Item=entry)
    with pytest.raises(RefusedError, match="s3a://"):
        append(uri, options, 2)


def test_a_missing_table_of_entries_is_named(uri, options):
    with pytest.raises(StorageError, match="no DynamoDB table nowhere") as raised:
        append(uri, {**options, "locking_table": "nowhere"}, 1)
    assert "tablePath" in raised.value.hint


def test_without_an_answer_of_dynamodb_nothing_is_read_or_written(uri, options, s3_server):
    with pytest.raises(LakehandError) as raised:
        append(uri, {**options, "locking_endpoint": "http://127.0.0.1:1"}, 1)
    assert raised.value.retryable or isinstance(raised.value, CommitUnknownError)
    assert ids(uri, options) == []


def test_a_table_whose_old_entries_are_left_is_not_created_again(uri, options):
    store = open_store(uri, options)
    assert store.delete([info.key for info in store.list()]) == []

    with pytest.raises(StorageError, match="has an entry") as raised:
        lakehand.create_table(uri, SCHEMA, storage_options=options)
    assert "delete its entries" in raised.value.hint


def test_the_options_are_read_from_the_environment_as_delta_rs_names_them(
    uri, options, s3_server, dynamodb_server, entries, monkeypatch
):
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
    monkeypatch.setenv("DELTA_DYNAMO_TABLE_NAME", entries)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_server.endpoint)

    append(uri, s3_server.options, 1)

    assert len(dynamodb_server.entries(entries)) == 2
