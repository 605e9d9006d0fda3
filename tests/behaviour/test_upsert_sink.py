"""A sink that upserts: epochs of changelogs become the state that they come to, once."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import CommitUnknownError, DuplicateKeyError, RefusedError, ValidationError
from lakehand.sink import TableSink
from lakehand.storage import Fault, FaultKind, FaultStore, RetryPolicy, open_store
from support.deduplications import in_order

UPSERT = {"write.mode": "upsert", "merge.key.columns": "id"}


def batch(**columns):
    return pa.record_batch(columns)


def write(path, *epochs, first=1, **options):
    """Write epochs and return their receipts; None where nothing was committed."""
    receipts = []
    with TableSink(path, writer_id="w", **{**UPSERT, **options}) as sink:
        for number, batches in enumerate(epochs, start=first):
            sink.begin_epoch(number)
            for one in batches:
                sink.write(one)
            receipts.append(sink.commit_epoch())
        return receipts, sink.metrics


def state(path, *names):
    table = lakehand.open_table(path).to_arrow(columns=names or None)
    return in_order(zip(*table.to_pydict().values(), strict=True))


def test_upsert_collapses_aggregating_mv_to_current_state(tmp_path):
    """A view of sums per key sends what each sum was and is: the table holds what it is."""
    receipts, metrics = write(
        tmp_path,
        [
            batch(id=["a", "b"], total=[1, 5], __weight=[1, 1]),
            batch(id=["a", "a"], total=[1, 3], __weight=[-1, 1]),
        ],
        [batch(id=["a", "a", "b"], total=[3, 9, 5], __weight=[-1, 1, -1])],
    )

    assert state(tmp_path) == [("a", 9)]
    assert [receipt.version for receipt in receipts] == [1, 2]
    assert (metrics.collapse_rows_in, metrics.collapse_upserts_out) == (7, 3)
    assert (metrics.collapse_deletes_out, metrics.changelog_deletes) == (1, 1)
    assert lakehand.open_table(tmp_path).snapshot().schema.names == ["id", "total"]


def test_upsert_replay_of_committed_epoch_is_idempotent(tmp_path):
    first = [batch(id=[1, 2], v=["a", "b"], _op=["I", "I"])]
    write(tmp_path, first, [batch(id=[1], v=["z"], _op=["U"])])

    receipts, metrics = write(tmp_path, first, [batch(id=[9], v=["no"], _op=["I"])])

    assert state(tmp_path) == [(1, "z"), (2, "b")]
    assert (receipts, metrics.epochs_skipped) == ([None, None], 2)


def test_an_epoch_is_one_change_of_each_key_over_all_batches(tmp_path):
    write(
        tmp_path,
        [
            batch(id=[1, 2], v=["a", "b"], _op=["I", "I"]),
            batch(id=[1, 3], v=["c", None], _op=["U", "D"]),
            batch(id=[2], v=["-"], _op=["D"], _ts_ms=[5]),
        ],
    )

    assert state(tmp_path) == [(1, "c")]


def test_rows_without_bookkeeping_are_upserts_and_the_last_counts(tmp_path):
    write(tmp_path, [batch(id=[1, 1], v=["a", "b"])], [batch(id=[1], v=["c"])])

    assert state(tmp_path) == [(1, "c")]


def test_an_epoch_that_changes_nothing_is_remembered(tmp_path):
    gone = [batch(id=[7], v=["x"], _op=["D"])]
    receipts, _ = write(tmp_path, [batch(id=[1], v=["a"])], gone)
    lakehand.open_table(tmp_path, engine="local").append(pa.table({"id": [7], "v": ["late"]}))

    again, metrics = write(tmp_path, gone, first=2)

    assert receipts[1].version == 2
    assert (again, metrics.epochs_skipped) == ([None], 1)
    assert state(tmp_path) == [(1, "a"), (7, "late")]


def test_rollback_after_pre_commit_discards_staged(tmp_path):
    with TableSink(tmp_path, writer_id="w", **UPSERT) as sink:
        sink.begin_epoch(1)
        sink.write(batch(id=[1], v=["a"]))
        sink.pre_commit()
        sink.rollback_epoch()
        sink.begin_epoch(1)
        sink.write(batch(id=[2], v=["b"]))
        sink.commit_epoch()

    assert state(tmp_path) == [(2, "b")]


def test_zset_non_unique_merge_key_errors_and_nothing_is_changed(tmp_path):
    write(tmp_path, [batch(id=[1], v=["a"], __weight=[1])])

    with pytest.raises(DuplicateKeyError):
        write(tmp_path, [batch(id=[2, 2], v=["a", "b"], __weight=[1, 1])], first=2)

    assert state(tmp_path) == [(1, "a")]


def test_at_least_once_upserts_are_the_same_when_they_come_again(tmp_path):
    for _ in range(2):
        with TableSink(tmp_path, **UPSERT) as sink:
            sink.write(batch(id=[1, 2], v=["a", "b"], _op=["I", "I"]))
            sink.flush()
            sink.write(batch(id=[1], v=["-"], _op=["D"]))

    assert state(tmp_path) == [(2, "b")]


def test_a_lost_answer_is_looked_up_before_anything_is_tried_again(tmp_path, monkeypatch):
    policy = RetryPolicy(max_retries=1, base_delay=timedelta(milliseconds=1))
    monkeypatch.setattr("lakehand.formats.delta.commits.publish._READ_BACK", policy)
    write(tmp_path, [batch(id=[1], v=["a"])])
    log = "_delta_log/*2.json"
    lost = Fault(kind=FaultKind.LOST_ANSWER, operation="put_if_absent", key=log)
    unread = Fault(kind=FaultKind.FAIL_BEFORE, operation="get", key=log, times=2)

    store = FaultStore(open_store(tmp_path), [lost, unread])
    with TableSink(store, writer_id="w", **UPSERT) as sink:
        sink.begin_epoch(2)
        sink.write(batch(id=[1, 2], v=["b", "b"]))
        with pytest.raises(CommitUnknownError):
            sink.commit_epoch()
        receipt = sink.commit_epoch()

    assert (receipt.version, receipt.already_committed) == (2, True)
    assert state(tmp_path) == [(1, "b"), (2, "b")]
    assert lakehand.open_table(tmp_path).snapshot().version == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"write.mode": "upsert"}, ValidationError),
        ({"merge.key.columns": "id"}, ValidationError),
        ({**UPSERT, "schema_evolution": True}, RefusedError),
        ({**UPSERT, "pipeline": "p", "writer_id": "w"}, ValidationError),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, options, error):
    with pytest.raises(error):
        TableSink(tmp_path, **options)


def test_the_two_forms_of_changelogs_cannot_be_mixed(tmp_path):
    with TableSink(tmp_path, writer_id="w", **UPSERT) as sink:
        sink.begin_epoch(1)
        sink.write(batch(id=[1], v=["a"], _op=["I"]))
        with pytest.raises(ValidationError, match="zset"):
            sink.write(batch(id=[1], v=["a"], __weight=[1]))
        sink.rollback_epoch()
