"""Every conflict rule: what a winner leaves of a change."""

from __future__ import annotations

import json

import pytest

from lakehand.errors import CommitConflictError, CommitUnknownError, ReplanError
from lakehand.formats.delta.commits.conflicts import holds_transaction, rebase
from lakehand.model.work import Change
from support.changes import (
    append,
    commit,
    head,
    live_file,
    metadata,
    overwrite,
    protocol,
    replacement,
    rewrite,
    staged_file,
)


def groups_of(change):
    return [replacement.group for replacement in change.replacements]


def test_an_append_does_not_disturb_a_rewrite():
    change = rewrite(replacement(1, "a", "b"))

    assert rebase(change, head(), commit(adds=("new.parquet",))) == change


def test_a_rewrite_of_other_files_does_not_disturb_a_rewrite():
    change = rewrite(replacement(1, "a", "b"))
    winner = commit(adds=("big",), removes=("c", "d"), data_change=False)

    assert rebase(change, head(), winner) == change


@pytest.mark.parametrize(
    "winner",
    [
        commit(removes=("a",)),
        commit(removes=("a",), data_change=False),
        commit(adds=("a",)),
        commit(adds=("a",), data_change=False),
    ],
    ids=["delete", "rewrite", "re-add", "statistics"],
)
def test_a_winner_that_names_an_input_drops_that_group_and_keeps_the_rest(winner):
    change = rewrite(replacement(1, "a", "b"), replacement(2, "c", "d"), replacement(3, "e"))

    assert groups_of(rebase(change, head(), winner)) == [2, 3]


@pytest.mark.parametrize("name", ["{}/a", "{}/%61"])
def test_a_winner_may_name_an_input_by_its_absolute_path(name):
    change = rewrite(replacement(1, "a"), replacement(2, "b"))
    winner = commit(removes=(name.format(head().table),))

    assert groups_of(rebase(change, head(), winner)) == [2]


def test_a_file_elsewhere_is_another_file():
    change = rewrite(replacement(1, "a"))
    winner = commit(removes=(f"{head().table}-clone/a", "s3://bucket/a", "odd:/a"))

    assert rebase(change, head(), winner) == change


def test_a_new_deletion_vector_on_an_input_drops_the_group():
    change = rewrite(replacement(1, "a"), replacement(2, "b"))
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1}
    add = {"path": "a", "dataChange": True, "deletionVector": vector}
    winner = commit(commit_info=None)
    winner = type(winner)(version=6, commit_info=None, adds=(add,), removes=({"path": "a"},))

    assert groups_of(rebase(change, head(), winner)) == [2]


def test_paths_are_compared_decoded():
    change = rewrite(replacement(1, "p=a%3Ab/one file"), replacement(2, "c"))

    assert groups_of(rebase(change, head(), commit(removes=("p=a%253Ab/one%20file",)))) == [2]


def test_a_rewrite_without_any_group_left_conflicts():
    change = rewrite(replacement(1, "a"), replacement(2, "b"))

    with pytest.raises(CommitConflictError, match="every group") as error:
        rebase(change, head(), commit(removes=("a", "b")))
    assert (error.value.expected_version, error.value.actual_version) == (5, 6)


def test_groups_are_dropped_one_winner_after_the_other():
    change = rewrite(replacement(1, "a"), replacement(2, "b"), replacement(3, "c"))

    change = rebase(change, head(5), commit(6, removes=("a",)))
    change = rebase(change, head(6), commit(7, removes=("c",)))

    assert groups_of(change) == [2]


def test_a_changed_protocol_stops_everything():
    with pytest.raises(ReplanError, match="protocol"):
        rebase(append("x"), head(), commit(protocol=protocol("deletionVectors")))


def test_the_same_protocol_written_again_is_harmless():
    assert rebase(append("x"), head(), commit(protocol=protocol())) == append("x")


@pytest.mark.parametrize(
    "changed",
    [
        metadata(configuration={"delta.appendOnly": "true"}),
        metadata(partition_columns=("id",)),
        metadata(fields=[]),
        metadata(description="new"),
    ],
)
def test_changed_metadata_stops_everything(changed):
    with pytest.raises(ReplanError, match="schema or properties"):
        rebase(rewrite(replacement(1, "a")), head(), commit(metadata=changed))


def identity_column(mark, *, step=1):
    values = {
        "delta.identity.start": 1,
        "delta.identity.step": step,
        "delta.identity.highWaterMark": mark,
    }
    return {"name": "id", "type": "long", "nullable": True, "metadata": values}


def test_identity_columns_may_count_on():
    before = head(metadata=metadata(fields=[identity_column(10)]))
    change = rewrite(replacement(1, "a"))
    winner = commit(adds=("new",), metadata=metadata(fields=[identity_column(20)]))

    assert rebase(change, before, winner) == change


def test_identity_columns_may_not_change_otherwise():
    before = head(metadata=metadata(fields=[identity_column(10)]))
    winner = commit(metadata=metadata(fields=[identity_column(20, step=2)]))

    with pytest.raises(ReplanError):
        rebase(rewrite(replacement(1, "a")), before, winner)


CLUSTERING = {"domain": "delta.clustering", "configuration": json.dumps({"clusteringColumns": []})}


def test_changed_clustering_columns_stop_clustering():
    change = rewrite(replacement(1, "a"), parameters={"clusterBy": ["id"]})

    with pytest.raises(ReplanError, match="clustered by"):
        rebase(change, head(), commit(domains=(CLUSTERING,)))


def test_changed_clustering_columns_do_not_stop_plain_compaction():
    change = rewrite(replacement(1, "a"), parameters={"clusterBy": []})

    assert rebase(change, head(), commit(domains=(CLUSTERING,))) == change


def test_other_domains_are_no_concern():
    change = rewrite(replacement(1, "a"), parameters={"clusterBy": ["id"]})
    domains = ({"domain": "someone.else", "configuration": "{}"},)

    assert rebase(change, head(), commit(domains=domains)) == change


def test_an_append_goes_through_whatever_files_the_winner_touched():
    winner = commit(adds=("a", "b"), removes=("c",))

    assert rebase(append("x"), head(), winner) == append("x")


def test_a_file_that_a_winner_already_added_may_be_ours_and_is_kept():
    with pytest.raises(CommitUnknownError, match=r"already has the file 'x'"):
        rebase(append("x"), head(), commit(adds=("x",)))


@pytest.mark.parametrize("winner", [commit(removes=("a",)), commit(adds=("a",))])
def test_a_replaced_file_that_a_winner_touched_is_a_conflict(winner):
    change = overwrite(removes=("a", "b"), adds=("x",))

    with pytest.raises(CommitConflictError, match=r"1 of the files .* 'a'"):
        rebase(change, head(), winner)


def test_a_new_deletion_vector_conflicts_with_any_touch_of_its_file():
    vector = {"storageType": "u", "pathOrInlineDv": "y", "offset": 1}
    change = Change(
        kind="delete",
        base_version=5,
        operation="DELETE",
        removes=(live_file("a"),),
        adds=(staged_file("a", deletionVector=vector),),
    )

    with pytest.raises(CommitConflictError):
        rebase(change, head(), commit(adds=("a",), removes=("a",)))


@pytest.mark.parametrize(
    "winner", [commit(adds=("new",)), commit(removes=("old",))], ids=["added", "removed"]
)
def test_rows_that_were_read_may_not_change(winner):
    change = overwrite(removes=("a",), adds=("x",), reads_rows=True)

    with pytest.raises(CommitConflictError, match="added or removed rows"):
        rebase(change, head(), winner)


def test_rows_that_were_read_may_move():
    change = overwrite(removes=("a",), adds=("x",), reads_rows=True)
    winner = commit(adds=("big",), removes=("b", "c"), data_change=False)

    assert rebase(change, head(), winner) == change


def test_an_action_that_does_not_say_so_changes_data():
    change = overwrite(removes=("a",), adds=("x",), reads_rows=True)
    winner = type(commit())(version=6, commit_info=None, adds=({"path": "new"},))

    with pytest.raises(CommitConflictError):
        rebase(change, head(), winner)


def transactions(*pairs):
    return commit(transactions=tuple({"appId": app, "version": v} for app, v in pairs))


@pytest.mark.parametrize("version", [7, 8])
def test_our_transaction_in_a_winner_means_done(version):
    assert holds_transaction(append("x", txn=("sink", 7)), transactions(("sink", version)), head())


def test_transactions_of_other_applications_are_no_concern():
    change = append("x", txn=("sink", 7))

    assert not holds_transaction(change, transactions(("other", 9)), head())
    assert not holds_transaction(append("x"), transactions(("sink", 9)), head())


def test_an_older_transaction_of_our_application_is_another_writer_under_our_name():
    with pytest.raises(CommitConflictError, match="transaction 6") as error:
        holds_transaction(append("x", txn=("sink", 7)), transactions(("sink", 6)), head())
    assert not error.value.retryable
