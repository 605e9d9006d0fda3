"""Statistics of live files in a commit: a lone add is legal only if the file is still as it was."""

from __future__ import annotations

import json

import pytest

from lakehand.errors import CommitConflictError, ReplanError, ValidationError
from lakehand.formats.delta.commits.change_rules import check_change
from lakehand.formats.delta.commits.conflicts import rebase
from lakehand.formats.delta.commits.draft import draft_commit
from lakehand.formats.delta.protocol.actions import parse_commit
from lakehand.model.work import Change, Refreshed
from support.changes import commit, head, live_file, metadata, protocol, replacement, stats

ROW_TRACKING = {"protocol": protocol("rowTracking", "domainMetadata")}


def refreshed(path, *, rows=10, native=None, **add):
    file = live_file(path, **add)
    return Refreshed(file=file, native=native or {"stats": stats(rows)})


def change(*items, **values):
    return Change(
        kind="statistics", base_version=5, operation="statistics", refreshed=items, **values
    )


def draft(made, base=None):
    base = base or head()
    return parse_commit(base.version + 1, draft_commit(made, base, token="token", now_ms=9))


def test_an_entry_is_written_again_with_other_statistics_and_nothing_else():
    live = {"size": 7, "modificationTime": 3, "tags": {"a": "b"}, "unknown": [1], "stats": None}
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    live |= {"deletionVector": vector}
    item = refreshed("a%20b", **live)

    [add] = draft(change(item)).adds

    assert add == {**item.file.native["add"], "dataChange": False, "stats": stats(10)}
    assert list(add) == list(item.file.native["add"])


@pytest.mark.parametrize("ids", [{"baseRowId": 70, "defaultRowCommitVersion": 3}, {}])
def test_row_ids_stay_as_they_are_and_none_are_handed_out(ids):
    base = head(**ROW_TRACKING, row_id_high_water_mark=99)

    drafted = draft(change(refreshed("a", **ids)), base)

    names = ("baseRowId", "defaultRowCommitVersion")
    assert {n: drafted.adds[0][n] for n in names if n in drafted.adds[0]} == ids
    assert drafted.domains == ()


def test_the_commit_is_called_compute_stats():
    info = draft(change(refreshed("a"), parameters={"where": "p = 1"})).commit_info

    assert info["operation"] == "COMPUTE STATS"
    assert info["operationParameters"] == {"predicate": '["p = 1"]'}
    assert (info["isolationLevel"], info["isBlindAppend"]) == ("SnapshotIsolation", False)
    assert info["operationMetrics"] == {"numRefreshedFiles": "1"}


@pytest.mark.parametrize("winner", [{"adds": ("a",)}, {"removes": ("a",)}])
def test_a_file_that_a_winner_names_is_left_out(winner):
    left = rebase(change(refreshed("a"), refreshed("b")), head(), commit(**winner))

    assert [item.file.path for item in left.refreshed] == ["b"]


def test_paths_are_compared_decoded():
    with pytest.raises(CommitConflictError, match="statistics were left"):
        rebase(change(refreshed("a b")), head(), commit(removes=("a%20b",)))


def test_appends_and_rewrites_of_other_files_do_not_matter():
    made = change(refreshed("a"))

    assert rebase(made, head(), commit(adds=("new",), removes=("old",))) == made


def test_other_columns_or_properties_mean_other_statistics():
    winner = commit(metadata=metadata(configuration={"delta.dataSkippingNumIndexedCols": "2"}))
    with pytest.raises(ReplanError):
        rebase(change(refreshed("a")), head(), winner)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (change(), "has none"),
        (change(refreshed("a"), adds=(replacement(1, "b").adds[0],)), "cannot have these files"),
        (change(refreshed("a"), refreshed("a")), "refreshes 'a' 2 times"),
        (change(refreshed("a", native={"stats": stats(10), "size": 1})), "more of 'a'"),
        (change(refreshed("a", rows=9)), "has 10 rows, and 9"),
        (change(refreshed("a", native={"stats": json.dumps({})})), "None by its new statistics"),
    ],
)
def test_what_is_more_than_statistics_is_refused(made, message):
    with pytest.raises(ValidationError, match=message):
        check_change(made, head())


def test_a_file_that_was_not_counted_may_be_counted_now():
    file = live_file("a")
    counted = Refreshed(
        file=type(file)(path="a", bytes=1, rows=None, native=file.native),
        native={"stats": stats(4)},
    )
    check_change(change(counted), head())
