"""What a checkpoint holds, action by action, and when it is written."""

from __future__ import annotations

import io
import json
import logging
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest

from lakehand.errors import RefusedError, StorageError, VersionNotFoundError
from lakehand.formats.delta.checkpoints.checkpoint import (
    checkpoint_due,
    checkpoint_if_due,
    write_checkpoint,
)
from lakehand.formats.delta.checkpoints.last_checkpoint import (
    check_checkpoint,
    read_last_checkpoint,
)
from lakehand.formats.delta.log.listing import find_segment, list_log
from lakehand.formats.delta.protocol.names import LAST_CHECKPOINT_KEY, commit_key
from lakehand.observe.clock import ManualClock
from lakehand.storage import Fault, FaultKind, FaultStore
from support.hand_written_logs import add, field, metadata, new_log, protocol, put_commit, remove

NOW = datetime(2026, 11, 15, tzinfo=UTC)
CLOCK = ManualClock(NOW)
NOW_MS = int(NOW.timestamp() * 1000)
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 40,
    "cardinality": 6,
}
V2 = {"delta.checkpointPolicy": "v2"}


def actions_in(store, receipt):
    """Return all actions of a checkpoint as (kind, members that are not null)."""
    found = []
    for key in receipt.keys:
        if key.endswith(".json"):
            rows = [json.loads(line) for line in store.get(key).splitlines()]
        else:
            rows = pq.read_table(io.BytesIO(store.get(key))).to_pylist(maps_as_pydicts="strict")
        found += [(kind, value) for row in rows for kind, value in row.items() if value is not None]
    return [
        (kind, {name: item for name, item in value.items() if item is not None})
        for kind, value in found
    ]


def of_kind(actions, kind):
    return [value for of, value in actions if of == kind]


def checkpointed(*commits):
    store = new_log(*commits)
    return actions_in(store, write_checkpoint(store, clock=CLOCK))


def test_every_member_of_a_live_add_survives():
    full = add(
        "p=1/a%20b.parquet",
        partitionValues={"p": "1"},
        tags={"INSERTION_TIME": "7"},
        deletionVector=VECTOR,
        baseRowId=10,
        defaultRowCommitVersion=3,
        clusteringProvider="liquid",
        stats='{"numRecords":9,"minValues":{"id":1}}',
    )["add"]

    actions = checkpointed(
        [
            protocol("rowTracking", "domainMetadata", "clustering", reader=["deletionVectors"]),
            metadata(field("id", "long"), field("p", "integer"), partition_by=["p"]),
            {"add": full},
        ]
    )

    (found,) = of_kind(actions, "add")
    parsed = found.pop("stats_parsed")
    assert found.pop("partitionValues_parsed") == {"p": 1}
    assert found == {**full, "dataChange": False}
    assert (parsed["numRecords"], parsed["minValues"]) == (9, {"id": 1})


def test_only_the_newest_action_of_a_file_counts():
    actions = checkpointed(
        [protocol(), metadata(), add("a"), add("b"), add("c")],
        [remove("a", at_ms=NOW_MS), add("b", rows=2)],
    )

    adds = {value["path"]: json.loads(value["stats"]) for value in of_kind(actions, "add")}
    assert adds == {"b": {"numRecords": 2}, "c": {"numRecords": 1}}
    assert [value["path"] for value in of_kind(actions, "remove")] == ["a"]


def test_an_add_without_partition_values_gets_empty_ones():
    bare = add("a")
    del bare["add"]["partitionValues"]

    actions = checkpointed([protocol(), metadata(), bare])

    assert of_kind(actions, "add")[0]["partitionValues"] == {}


def test_a_tombstone_keeps_what_others_need_and_drops_statistics_and_tags():
    tombstone = remove(
        "a",
        at_ms=NOW_MS,
        stats="{}",
        tags={"k": "v"},
        deletionVector=VECTOR,
        baseRowId=1,
        defaultRowCommitVersion=0,
    )["remove"]

    actions = checkpointed(
        [protocol("rowTracking", reader=["deletionVectors"]), metadata(), {"remove": tombstone}]
    )

    (found,) = of_kind(actions, "remove")
    assert found == {
        name: value for name, value in tombstone.items() if name not in {"stats", "tags"}
    } | {"dataChange": False}


@pytest.mark.parametrize(
    ("properties", "kept"),
    [
        ({}, ["six-days"]),
        ({"delta.deletedFileRetentionDuration": "interval 5 days"}, []),
        ({"delta.deletedFileRetentionDuration": "interval 9 days"}, ["eight-days", "six-days"]),
        (
            {"delta.deletedFileRetentionDuration": "interval 9999999 days"},
            ["eight-days", "six-days", "without-time"],
        ),
    ],
)
def test_tombstones_live_as_long_as_the_table_says(properties, kept):
    day = timedelta(days=1) // timedelta(milliseconds=1)

    actions = checkpointed(
        [
            protocol(),
            metadata(properties=properties),
            remove("six-days", at_ms=NOW_MS - 6 * day),
            remove("eight-days", at_ms=NOW_MS - 8 * day),
            {"remove": {"path": "without-time", "dataChange": True}},
        ]
    )

    assert sorted(value["path"] for value in of_kind(actions, "remove")) == kept


def test_protocol_metadata_applications_and_domains_are_the_newest():
    domain = {"domain": "d", "configuration": "{}", "removed": False}
    actions = checkpointed(
        [
            protocol("domainMetadata"),
            metadata(properties={"user.key": "old"}),
            {"txn": {"appId": "a", "version": 5, "lastUpdated": 1}},
            {"txn": {"appId": "b", "version": 1}},
            {"domainMetadata": domain},
            {"domainMetadata": {**domain, "domain": "gone"}},
        ],
        [
            metadata(properties={"user.key": "new"}),
            {"txn": {"appId": "a", "version": 4, "lastUpdated": 2}},
            {"domainMetadata": {**domain, "domain": "gone", "removed": True}},
            {"domainMetadata": {**domain, "configuration": '{"x":1}'}},
        ],
    )

    assert of_kind(actions, "protocol") == [protocol("domainMetadata")["protocol"]]
    (newest,) = of_kind(actions, "metaData")
    assert newest == metadata(properties={"user.key": "new"})["metaData"]
    assert sorted(of_kind(actions, "txn"), key=lambda txn: txn["appId"]) == [
        {"appId": "a", "version": 4, "lastUpdated": 2},
        {"appId": "b", "version": 1},
    ]
    assert of_kind(actions, "domainMetadata") == [{**domain, "configuration": '{"x":1}'}]


def test_a_protocol_without_lists_has_none_in_the_checkpoint():
    actions = checkpointed([protocol(), metadata()])

    assert of_kind(actions, "protocol") == [{"minReaderVersion": 1, "minWriterVersion": 2}]


def test_applications_expire_only_where_the_table_says_so():
    hour = timedelta(hours=1) // timedelta(milliseconds=1)
    transactions = [
        {"txn": {"appId": "young", "version": 1, "lastUpdated": NOW_MS - hour}},
        {"txn": {"appId": "old", "version": 1, "lastUpdated": NOW_MS - 3 * hour}},
        {"txn": {"appId": "undated", "version": 1}},
    ]
    expiring = {"delta.setTransactionRetentionDuration": "interval 2 hours"}

    kept = checkpointed([protocol(), metadata(), *transactions])
    expired = checkpointed([protocol(), metadata(properties=expiring), *transactions])

    assert sorted(t["appId"] for t in of_kind(kept, "txn")) == ["old", "undated", "young"]
    assert sorted(t["appId"] for t in of_kind(expired, "txn")) == ["undated", "young"]


def test_a_checkpoint_on_a_checkpoint_holds_the_same_state():
    store = new_log([protocol(), metadata(), add("a"), add("b", tags={"k": "v"})], [add("c")])
    first = actions_in(store, write_checkpoint(store, clock=CLOCK))
    put_commit(store, 2, remove("a", at_ms=NOW_MS))
    put_commit(store, 3, add("a"))

    second = actions_in(store, write_checkpoint(store, clock=CLOCK))

    by_path = {value["path"]: value for value in of_kind(second, "add")}
    assert by_path == {value["path"]: value for value in of_kind(first, "add")}
    assert of_kind(second, "remove") == []


def test_statistics_that_only_a_struct_keeps_come_back_as_text():
    properties = {"delta.checkpoint.writeStatsAsJson": "false"}
    store = new_log([protocol(), metadata(properties=properties), add("a", rows=7)])
    assert "stats" not in of_kind(actions_in(store, write_checkpoint(store, clock=CLOCK)), "add")[0]
    put_commit(store, 1, metadata())

    actions = actions_in(store, write_checkpoint(store, clock=CLOCK))

    assert json.loads(of_kind(actions, "add")[0]["stats"])["numRecords"] == 7


def test_the_pointer_names_the_checkpoint_once_it_is_whole():
    store = new_log([protocol(), metadata(), add("a"), add("b")])

    receipt = write_checkpoint(store, clock=CLOCK)

    pointer = read_last_checkpoint(store)
    assert (pointer.version, pointer.action_count, pointer.add_count) == (0, 4, 2)
    assert pointer.size_bytes == receipt.bytes == len(store.get(receipt.keys[0]))
    assert (receipt.is_new, receipt.is_pointed_to) == (True, True)


def test_a_whole_checkpoint_is_not_written_again_but_its_pointer_is_set_right():
    store = new_log([protocol(), metadata(), add("a")])
    first = write_checkpoint(store, clock=CLOCK)
    store.delete([LAST_CHECKPOINT_KEY])

    second = write_checkpoint(store, clock=CLOCK)

    assert not second.is_new
    assert second.keys == first.keys
    assert read_last_checkpoint(store).version == 0


def test_a_damaged_checkpoint_is_replaced():
    store = new_log([protocol(), metadata(), add("a")])
    key = write_checkpoint(store, clock=CLOCK).keys[0]
    store.put(key, store.get(key)[:-9])

    receipt = write_checkpoint(store, clock=CLOCK)

    assert receipt.is_new
    assert [check_checkpoint(store, c).problem for c in list_log(store).checkpoints] == [None]


def test_a_checkpoint_of_an_older_version_leaves_the_pointer_alone():
    store = new_log([protocol(), metadata(), add("a")], [add("b")], [add("c")])
    write_checkpoint(store, clock=CLOCK)

    receipt = write_checkpoint(store, version=1, clock=CLOCK)

    assert not receipt.is_pointed_to
    assert read_last_checkpoint(store).version == 2
    assert [c.version for c in list_log(store).checkpoints] == [1, 2]


def test_a_version_that_is_not_there_has_no_checkpoint():
    store = new_log([protocol(), metadata()])

    with pytest.raises(VersionNotFoundError):
        write_checkpoint(store, version=3, clock=CLOCK)


def test_a_table_with_an_unknown_feature_is_refused_and_nothing_is_written():
    store = new_log([protocol("featureOfTomorrow"), metadata(), add("a")])

    with pytest.raises(RefusedError, match="featureOfTomorrow"):
        write_checkpoint(store, clock=CLOCK)

    assert list_log(store).checkpoints == ()
    assert not store.exists(LAST_CHECKPOINT_KEY)


def test_a_v2_checkpoint_names_its_sidecars_and_keeps_file_actions_out_of_the_top_file():
    store = new_log(
        [protocol(reader=["v2Checkpoint"]), metadata(properties=V2), add("a")],
        [remove("b", at_ms=NOW_MS)],
    )

    receipt = write_checkpoint(store, clock=CLOCK)

    top, sidecar = receipt.keys
    kinds = [next(iter(json.loads(line))) for line in store.get(top).splitlines()]
    assert kinds == ["checkpointMetadata", "sidecar", "protocol", "metaData"]
    assert len(of_kind(actions_in(store, receipt), "add")) == 1
    assert check_checkpoint(store, find_segment(store).checkpoint).problem is None
    assert sidecar.startswith("_delta_log/_sidecars/00000000000000000001.checkpoint.")


def test_sidecars_hold_so_many_actions_each(monkeypatch):
    monkeypatch.setattr("lakehand.formats.delta.checkpoints.checkpoint.SIDECAR_ROWS", 4)
    adds = [add(f"f{number}") for number in range(9)]
    store = new_log([protocol(reader=["v2Checkpoint"]), metadata(properties=V2), *adds])

    receipt = write_checkpoint(store, clock=CLOCK)

    assert len(receipt.keys) == 1 + 3
    paths = [value["path"] for value in of_kind(actions_in(store, receipt), "add")]
    assert sorted(paths) == [f"f{number}" for number in range(9)]


def test_a_v2_checkpoint_of_an_empty_table_has_no_sidecar():
    store = new_log([protocol(reader=["v2Checkpoint"]), metadata(properties=V2)])

    assert len(write_checkpoint(store, clock=CLOCK).keys) == 1


def test_members_that_lakehand_does_not_know_survive_in_a_v2_checkpoint():
    described = metadata(properties=V2)
    described["metaData"]["owner"] = "someone"
    store = new_log([protocol(reader=["v2Checkpoint"]), described])

    actions = actions_in(store, write_checkpoint(store, clock=CLOCK))

    assert of_kind(actions, "metaData")[0]["owner"] == "someone"


def test_a_v2_checkpoint_may_name_its_sidecars_with_their_directories():
    store = new_log([protocol(reader=["v2Checkpoint"]), metadata(properties=V2), add("a")])
    top, sidecar = write_checkpoint(store, clock=CLOCK).keys
    name = sidecar.rpartition("/")[2].encode()
    store.put(top, store.get(top).replace(name, sidecar.encode()))

    check = check_checkpoint(store, find_segment(store).checkpoint)

    assert (check.problem, check.keys) == (None, (top, sidecar))


def test_a_v2_checkpoint_whose_sidecar_is_gone_is_not_whole():
    store = new_log([protocol(reader=["v2Checkpoint"]), metadata(properties=V2), add("a")])
    _, sidecar = write_checkpoint(store, clock=CLOCK).keys
    store.delete([sidecar])

    problem = check_checkpoint(store, find_segment(store).checkpoint).problem

    assert sidecar in problem


@pytest.mark.parametrize(
    ("checkpoint", "version", "due"),
    [(None, 8, False), (None, 9, True), (0, 9, False), (0, 10, True), (4, 30, True)],
)
def test_checkpoint_interval(checkpoint, version, due):
    store = new_log([protocol(), metadata()], *[[add(f"f{n}")] for n in range(version)])
    if checkpoint is not None:
        write_checkpoint(store, version=checkpoint, clock=CLOCK)

    assert checkpoint_due(find_segment(store), 10) is due


def test_checkpoint_creates_parquet():
    store = new_log([protocol(), metadata()], *[[add(f"f{n}")] for n in range(9)])

    receipt = checkpoint_if_due(store, interval=10, clock=CLOCK)

    data = store.get(receipt.keys[0])
    assert (data[:4], data[-4:]) == (b"PAR1", b"PAR1")
    assert checkpoint_if_due(store, interval=10, clock=CLOCK) is None


def test_a_failing_checkpoint_is_logged_and_fails_nothing(caplog):
    store = new_log([protocol("featureOfTomorrow"), metadata()], [add("a")])

    with caplog.at_level(logging.WARNING, logger="lakehand"):
        assert checkpoint_if_due(store, interval=1, clock=CLOCK) is None

    assert [record.event for record in caplog.records] == ["checkpoint_failed"]


def partitioned_by_time(value):
    columns = (field("id", "long"), field("at", "timestamp"))
    return checkpointed(
        [
            protocol(),
            metadata(*columns, partition_by=["at"]),
            add("empty", partitionValues={"at": None}),
            add("a", partitionValues={"at": value}),
        ]
    )


def test_partition_times_with_a_zone_are_typed():
    actions = partitioned_by_time("2026-01-01T00:00:00.5Z")

    typed = {value["path"]: value["partitionValues_parsed"] for value in of_kind(actions, "add")}
    assert typed == {
        "empty": {"at": None},
        "a": {"at": datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)},
    }


def test_partition_times_without_a_zone_are_left_as_text():
    actions = partitioned_by_time("2026-01-01 00:00:00")

    assert [value.get("partitionValues_parsed") for value in of_kind(actions, "add")] == [None] * 2


def ten_commits():
    """Return a table for which a checkpoint is due, and when it became due."""
    store = new_log([protocol(), metadata()], *[[add(f"f{n}")] for n in range(10)])
    return store, store.head(commit_key(9)).modified_at


def test_of_many_writers_the_one_that_completes_an_interval_checkpoints():
    store, due_at = ten_commits()
    clock = ManualClock(due_at)

    assert checkpoint_if_due(store, interval=10, committed_version=10, clock=clock) is None
    assert checkpoint_if_due(store, interval=10, committed_version=9, clock=clock).version == 10


def test_another_writer_takes_its_turn_if_no_checkpoint_comes():
    store, due_at = ten_commits()
    later = ManualClock(due_at + timedelta(minutes=2))

    assert checkpoint_if_due(store, interval=10, committed_version=10, clock=later) is not None


def test_the_pointer_is_written_last_and_the_top_file_before_it():
    store = new_log([protocol(reader=["v2Checkpoint"]), metadata(properties=V2), add("a")])
    before = len(store.history)

    top, sidecar = write_checkpoint(store, clock=CLOCK).keys

    operations = store.history[before:]
    written = [entry.key for entry in operations if entry.name in {"put", "write"}]
    assert written == [sidecar, top, LAST_CHECKPOINT_KEY]


def test_a_pointer_that_cannot_be_written_leaves_a_checkpoint_that_is_found_by_listing():
    store = new_log([protocol(), metadata(), add("a")], [add("b")])
    failing = FaultStore(
        store, [Fault(kind=FaultKind.FAIL_BEFORE, key=LAST_CHECKPOINT_KEY, skip=1)]
    )

    with pytest.raises(StorageError):
        write_checkpoint(failing, clock=CLOCK)

    assert read_last_checkpoint(store) is None
    assert find_segment(store).checkpoint_version == 1
    assert not write_checkpoint(store, clock=CLOCK).is_new
