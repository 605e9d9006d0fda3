"""Changes that must not be committed, each with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehand.errors import ProofError, RefusedError, ReplanError, ValidationError
from lakehand.formats.delta.commits.change_rules import check_change
from lakehand.model.work import Change, Replacement
from support.changes import (
    append,
    head,
    live_file,
    metadata,
    overwrite,
    protocol,
    replacement,
    rewrite,
    staged_file,
)


def partitioned(**mapping):
    column = {"name": "day", "type": "date", "nullable": True, "metadata": mapping}
    other = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    mode = {"delta.columnMapping.mode": "name"} if mapping else {}
    return metadata(fields=[other, column], partition_columns=("day",), configuration=mode)


@pytest.mark.parametrize(
    "change",
    [
        rewrite(),
        replace(rewrite(replacement(1, "a")), adds=(staged_file("x"),)),
        append(),
        replace(append("a"), removes=(live_file("b"),)),
        overwrite(removes=(), adds=()),
        Change(kind="metadata", base_version=5, operation="X", adds=(staged_file("x"),)),
    ],
)
def test_a_change_has_the_files_of_its_kind(change):
    with pytest.raises(ValidationError, match="of kind"):
        check_change(change, head())


@pytest.mark.parametrize(
    "change",
    [append("a", "b"), append(txn=("sink", 1)), rewrite(replacement(1, "a"))],
)
def test_a_sound_change_passes(change):
    check_change(change, head())


@pytest.mark.parametrize(
    "change",
    [append("a", "b", "a"), rewrite(replacement(1, "a", "b"), replacement(2, "b"))],
    ids=["added twice", "in two groups"],
)
def test_no_file_is_named_twice(change):
    with pytest.raises(ValidationError, match="2 times"):
        check_change(change, head())


def test_a_file_is_not_replaced_by_itself():
    change = overwrite(removes=("a",), adds=("a",))

    with pytest.raises(ValidationError, match="adds it unchanged"):
        check_change(change, head())


def test_partition_values_must_be_those_of_the_table():
    with pytest.raises(ValidationError, match=r"partitioned by \['day'\]"):
        check_change(append("a"), head(metadata=partitioned()))


def test_partition_values_go_by_physical_names():
    mapped = partitioned(**{"delta.columnMapping.physicalName": "col-1"})
    base = head(
        metadata=mapped, protocol=protocol("columnMapping", reader_features=("columnMapping",))
    )
    right = staged_file("a", partitionValues={"col-1": "2026-01-01"})
    wrong = staged_file("a", partitionValues={"day": "2026-01-01"})

    check_change(replace(append(), adds=(right,)), base)
    with pytest.raises(ValidationError):
        check_change(replace(append(), adds=(wrong,)), base)


@pytest.mark.parametrize(
    "listed",
    [
        protocol("deletionVectors", reader_features=("deletionVectors",)),
        protocol("rowTracking", "domainMetadata"),
    ],
    ids=["deletion vectors", "row tracking"],
)
@pytest.mark.parametrize("stats", [None, "{}", '{"numRecords":null}', "no json"])
def test_files_need_a_row_count_where_others_rely_on_it(listed, stats):
    change = replace(append(), adds=(staged_file("a", stats=stats),))

    check_change(change, head())
    with pytest.raises(ValidationError, match="no row count"):
        check_change(change, head(protocol=listed))


def test_a_change_made_for_a_table_that_was_replaced_is_stopped():
    change = replace(append("a"), table_id="table-1")

    check_change(change, head())
    with pytest.raises(ReplanError, match="recreated"):
        check_change(change, head(metadata=metadata(id="table-2")))


def test_a_rewrite_that_loses_rows_is_stopped():
    group = Replacement(
        group=4, removes=(live_file("a", rows=10),), adds=(staged_file("x", rows=9),)
    )

    with pytest.raises(ProofError, match=r"group 4 .* 10 rows .* 9"):
        check_change(rewrite(group), head())


def test_deleted_rows_need_not_come_out_of_a_rewrite():
    live = live_file("a", rows=10, deleted_rows=4)
    check_change(
        rewrite(Replacement(group=1, removes=(live,), adds=(staged_file("x", rows=6),))), head()
    )


def test_an_update_of_a_table_with_a_change_feed_is_refused():
    fed = metadata(configuration={"delta.enableChangeDataFeed": "true"})
    change = overwrite(removes=("a",), adds=("b",), kind="update")

    with pytest.raises(RefusedError, match="change data feed"):
        check_change(change, head(metadata=fed))


def test_an_unknown_feature_is_refused_by_name():
    with pytest.raises(RefusedError, match="quantumRows"):
        check_change(append("a"), head(protocol=protocol("quantumRows")))


@pytest.mark.parametrize(("said", "left"), [(4, 5), (3, 7)])
def test_a_deletion_takes_as_many_rows_as_it_found(said, left):
    live = live_file("a", rows=10, deleted_rows=1)
    change = Change(
        kind="delete",
        base_version=5,
        operation="delete",
        removes=(live,),
        adds=(staged_file("x", rows=left),),
        metrics={"numDeletedRows": said},
    )

    if said == 9 - left:
        check_change(change, head())
    else:
        with pytest.raises(ProofError, match=r"3 rows .* and 2 would be"):
            check_change(change, head())
