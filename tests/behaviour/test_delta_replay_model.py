"""A log means the same however it is split over checkpoints, compactions and commits."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakehand.formats.delta.log.listing import find_segment
from lakehand.formats.delta.log.replay import live_actions, live_removes
from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.formats.delta.protocol import names
from lakehand.formats.delta.protocol.actions import file_key
from support.checkpoints import KINDS, json_lines, put_checkpoint
from support.hand_written_logs import add, compaction_key, metadata, new_log, protocol, remove
from support.streamed_adds import streamed_adds

START = (protocol(), metadata())


def vector(name: str, **members) -> dict:
    return {
        "storageType": "u",
        "pathOrInlineDv": name,
        "sizeInBytes": 4,
        "cardinality": 1,
    } | members


@dataclass
class Model:
    """A log reconciled with dicts: the shortest way to say what is right."""

    adds: dict = field(default_factory=dict)
    removes: dict = field(default_factory=dict)
    transactions: dict = field(default_factory=dict)

    def apply(self, actions: list[dict]) -> None:
        for action in actions:
            ((kind, value),) = action.items()
            if kind == "txn":
                self.transactions[value["appId"]] = value
                continue
            here, there = self.adds, self.removes
            if kind == "remove":
                here, there = there, here
            here[file_key(value)] = value
            there.pop(file_key(value), None)

    def actions(self) -> list[dict]:
        adds = [{"add": value} for value in self.adds.values()]
        removes = [{"remove": value} for value in self.removes.values()]
        return [*START, *adds, *removes, *({"txn": txn} for txn in self.transactions.values())]


PATHS = st.sampled_from(["a", "p=1/b", "sp%20ace", "sp ace", "file:///x/y", "/x/y", "%C3%A9"])
VECTORS = st.sampled_from([None, vector("one"), vector("one", offset=1), vector("two", offset=0)])


@st.composite
def commits(draw) -> list[dict]:
    """Draw one commit: at most one action for each key, as the protocol asks."""
    chosen = draw(st.lists(st.tuples(PATHS, VECTORS, st.booleans()), max_size=4))
    actions = {}
    for path, descriptor, is_add in chosen:
        members = {"deletionVector": descriptor} if descriptor else {}
        rows = draw(st.integers(0, 9))
        action = add(path, rows=rows, **members) if is_add else remove(path, at_ms=1, **members)
        actions.setdefault(file_key(next(iter(action.values()))), action)
    transactions = draw(st.lists(st.sampled_from(["x", "y"]), unique=True))
    txns = [{"txn": {"appId": a, "version": draw(st.integers(0, 5))}} for a in transactions]
    return [*actions.values(), *txns]


@st.composite
def split_logs(draw):
    """Draw a log, and how it is split over a checkpoint, compactions and commits."""
    log = draw(st.lists(commits(), min_size=1, max_size=6))
    at = draw(st.none() | st.tuples(st.integers(0, len(log)), st.sampled_from(KINDS)))
    spans = draw(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=2))
    return log, at, [(first, last) for first, last in spans if first < last <= len(log)]


def state_at(log: list[list[dict]], version: int, *, after: int = 0) -> Model:
    model = Model()
    for actions in log[after:version]:
        model.apply(actions)
    return model


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(split_logs())
def test_however_a_log_is_split_the_same_files_are_live(drawn):
    log, at, spans = drawn
    store = new_log(START, *log)
    if at is not None:
        put_checkpoint(store, at[0], state_at(log, at[0]).actions(), at[1])
        store.delete([names.commit_key(version) for version in range(at[0])])
    for first, last in spans:
        compacted = state_at(log, last, after=first - 1).actions()[2:]
        store.put(compaction_key(first, last), json_lines(compacted))
    assert_equal_to_model(store, state_at(log, len(log)))


def assert_equal_to_model(store, model: Model) -> None:
    segment = find_segment(store)
    snapshot = load_snapshot(store)
    files = {key[0] for key in model.adds}
    adds = streamed_adds(store, segment)
    with live_removes(store, segment) as reader:
        removes = reader.read_all().to_pylist(maps_as_pydicts="strict")
    assert {file_key(found): found["stats"] for found in adds} == {
        key: value["stats"] for key, value in model.adds.items()
    }
    assert len(adds) == snapshot.file_count == len(model.adds)
    assert {file_key(found) for found in removes} == set(model.removes)
    assert set(snapshot.files["path"].to_pylist()) == files
    assert sum(snapshot.files["rows"].to_pylist()) == sum(
        json.loads(value["stats"])["numRecords"] for value in model.adds.values()
    )
    assert {app: txn["version"] for app, txn in snapshot.native.transactions.items()} == {
        app: txn["version"] for app, txn in model.transactions.items()
    }
    full = live_actions(store, segment, [*files, "not there"])
    assert {file_key(action): action["stats"] for action in full} == {
        key: value["stats"] for key, value in model.adds.items()
    }


def test_an_empty_compaction_is_not_used_and_its_commits_are():
    store = new_log(START, [], [])
    store.put(compaction_key(1, 2), b"")
    assert_equal_to_model(store, state_at([[], []], 2))
