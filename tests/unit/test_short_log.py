"""Short logs are reconciled in Python, and are what DuckDB makes of the same lines."""

from __future__ import annotations

import json
import random
from functools import partial

import pytest

from lakehand.errors import CorruptLogError
from lakehand.formats.delta.log import log_source
from lakehand.formats.delta.log.listing import find_segment
from lakehand.formats.delta.log.replay import live_actions, live_removes
from lakehand.formats.delta.log.short_log import file_actions, newest_files, parse_lines
from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.formats.delta.protocol.names import commit_key, decode_path
from support import hand_written_logs
from support.hand_written_logs import add, metadata, new_log, protocol

remove = partial(hand_written_logs.remove, at_ms=1_700_000_000_000)

VECTOR = {"storageType": "u", "pathOrInlineDv": "v", "sizeInBytes": 4, "cardinality": 1}
PATHS = ["a", "b", "p=1/c%20d", "p=1/c d", "file:///x/a", "/x/a", "\u00e9", "%C3%A9", "a%25b", "+"]


def random_members(chance):
    members = {
        "size": chance.choice([0, 1, 2**40]),
        "partitionValues": chance.choice([{}, {"p": None}, {"p": "007", "q": "\u00fc\n"}]),
        "stats": chance.choice([None, "no JSON", '{"numRecords":"3"}', '{"numRecords":7}']),
        "tags": chance.choice([None, {}, {"t": "1.10", "n": None}]),
        "baseRowId": chance.choice([None, 5, 2**62]),
        "own": chance.choice([1, {"deep": [1]}]),
    }
    vector = VECTOR | {"pathOrInlineDv": chance.choice("vw")}
    if chance.random() < 0.5:
        vector["offset"] = chance.choice([None, 1, 2])
    if chance.random() < 0.4:
        members["deletionVector"] = vector
    return members


def random_log(chance):
    commits = []
    for _ in range(chance.randrange(1, 6)):
        actions = [{"commitInfo": {"operation": "WRITE", "n": chance.random()}}]
        # One spelling of a file in a commit: which of two counts is not said.
        paths = {decode_path(path): path for path in chance.sample(PATHS, chance.randrange(7))}
        for path in paths.values():
            members = random_members(chance)
            actions.append(chance.choice([add, remove])(path, **members))
        if chance.random() < 0.3:
            actions.append({"txn": {"appId": "x", "version": chance.randrange(9)}})
        chance.shuffle(actions)
        commits.append(actions)
    return new_log((protocol(), metadata()), *commits)


def everything_in(store):
    snapshot = load_snapshot(store)
    segment = find_segment(store)
    with live_removes(store, segment) as reader:
        removes = reader.read_all().to_pylist()
    files = snapshot.files.to_pylist()
    paths = [file["path"] for file in files]
    return {
        "files": sorted(map(str, files)),
        "removes": sorted(map(str, removes)),
        "adds": sorted(json.dumps(a, sort_keys=True) for a in live_actions(store, segment, paths)),
        "transactions": snapshot.native.transactions,
    }


@pytest.mark.parametrize("seed", range(60))
def test_a_short_log_is_what_duckdb_makes_of_it(seed, monkeypatch):
    store = random_log(random.Random(seed))
    found = everything_in(store)

    monkeypatch.setattr(log_source, "MOST_BYTES", 0)

    assert everything_in(store) == found


def lines_of(*actions):
    return b"".join(json.dumps({"lakehandVersion": 1, **one}).encode() + b"\n" for one in actions)


def test_usual_lines_are_read_here():
    """The tests above would pass if nothing was."""
    lines = parse_lines(lines_of(add("a"), remove("b", deletionVector=VECTOR), {"txn": None}))

    assert [(version, kind) for version, kind, _ in lines] == [(1, "add"), (1, "remove")]
    assert newest_files(lines, "add")["vector_key"].to_pylist() == ["", "uv"]
    assert [key for key, _ in file_actions(lines)] == [("a", ""), ("b", "uv")]


ODD_ADDS = [
    {"path": None},
    {"path": ""},
    {"path": "%zz"},
    {"path": "%FF"},
    {"size": "100"},
    {"size": 100.0},
    {"size": True},
    {"size": 2**63},
    {"Size": 3},
    {"stats": {"numRecords": 1}},
    {"partitionValues": {"p": 7}},
    {"tags": ["t"]},
    {"deletionVector": {"storageType": "u"}},
    {"deletionVector": VECTOR | {"offset": 2**31}},
    {"deletionVector": []},
]


@pytest.mark.parametrize("members", ODD_ADDS, ids=str)
def test_odd_actions_are_left_to_duckdb(members, monkeypatch):
    """It may take them, or refuse them: the answer is the same whether the log is short or not."""
    action = add("a")
    action["add"] |= members
    lines = parse_lines(lines_of(action))
    assert file_actions(lines) is None
    assert newest_files(lines, "add") is None

    def outcome():
        store = new_log((protocol(), metadata()), [action])
        try:
            return sorted(map(str, load_snapshot(store).files.to_pylist()))
        except CorruptLogError as error:
            return error.message.replace(store.url, "")

    short = outcome()
    monkeypatch.setattr(log_source, "MOST_BYTES", 0)
    assert outcome() == short


@pytest.mark.parametrize(
    "line",
    [
        b'{"lakehandVersion":1,"later":{}}',
        b'{"lakehandVersion":1,"ADD":{}}',
        b'{"lakehandVersion":1,"add":{"path":"a"},"remove":{"path":"b"}}',
        b'{"lakehandVersion":1,"commitInfo":{"x":NaN}}',
        b'{"lakehandVersion":1,"commitInfo":{"x":-Infinity}}',
        b'{"lakehandVersion":1,"commitInfo":{"x":1,"x":2}}',
        b'{"lakehandVersion":1,"commitInfo":{"x":"\\u0000"}}',
        b'{"lakehandVersion":1,"commitInfo":{"x":"\\ud800"}}',
        b'{"lakehandVersion":1,"commitInfo":{"x":"\xff"}}',
        b'{"lakehandVersion":1,"commitInfo":{}} {}',
        b'{"lakehandVersion":1,"commitInfo":' + b"[" * 100_000,
    ],
)
def test_odd_lines_are_left_to_duckdb(line):
    assert parse_lines(line) is None


def test_one_version_that_adds_and_removes_a_file_is_refused():
    lines = parse_lines(lines_of(add("a"), remove("a")))
    assert newest_files(lines, "add") is None
    store = new_log((protocol(), metadata()), [add("a"), remove("a")])
    with pytest.raises(CorruptLogError, match="adds and removes a"):
        load_snapshot(store)


def test_a_long_log_is_read_by_duckdb(monkeypatch):
    monkeypatch.setattr(log_source, "parse_lines", lambda _: pytest.fail("it is long"))
    store = new_log((protocol(), metadata()), [add("x" * 300_000)])
    store.put(commit_key(2), json.dumps(add("b")).encode())

    assert len(load_snapshot(store).files) == 2
