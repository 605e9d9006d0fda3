from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from lakehand.formats.delta.checkpoints.content import checkpoint_form
from lakehand.formats.delta.log.log_state import LogState
from lakehand.formats.delta.protocol.actions import Metadata, Protocol
from lakehand.formats.delta.protocol.schema import PrimitiveType, StructField, StructType

BOTH_OFF = {
    "delta.checkpoint.writeStatsAsJson": "false",
    "delta.checkpoint.writeStatsAsStruct": "false",
}


def column(name, type_, physical=None):
    metadata = {"delta.columnMapping.physicalName": physical} if physical else {}
    return StructField(name, PrimitiveType(type_), metadata=metadata)


def form_of(*columns, properties=None, features=(), domains=None, partition_by=()):
    state = LogState(
        protocol=Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=tuple(features),
            writer_features=tuple(features),
        ),
        metadata=Metadata(
            id="x",
            schema_string=StructType(columns or (column("a", "long"),)).to_json(),
            configuration=properties or {},
            partition_columns=tuple(partition_by),
        ),
        domains=domains or {},
    )
    return checkpoint_form(state, table="memory://t")


def bound_names(form):
    return [member.name for member in form.statistics_struct.field("minValues").type]


def test_a_table_that_says_nothing_keeps_statistics_in_both_forms():
    form = form_of()

    assert form.statistics_json
    assert bound_names(form) == ["a"]
    assert not form.is_v2


def test_each_form_of_statistics_can_be_switched_off():
    assert not form_of(properties={"delta.checkpoint.writeStatsAsJson": "FALSE"}).statistics_json
    assert (
        form_of(properties={"delta.checkpoint.writeStatsAsStruct": "false"}).statistics_struct
        is None
    )


@pytest.mark.parametrize("feature", ["deletionVectors", "rowTracking"])
def test_features_that_need_row_counts_keep_statistics_whatever_the_properties_say(caplog, feature):
    with caplog.at_level(logging.WARNING, logger="lakehand"):
        form = form_of(properties=BOTH_OFF, features=[feature])

    assert form.statistics_json
    assert [record.event for record in caplog.records] == ["checkpoint_statistics_kept"]


def test_without_such_features_statistics_may_go():
    form = form_of(properties=BOTH_OFF)

    assert not form.statistics_json
    assert form.statistics_struct is None


def test_v2_needs_both_the_policy_and_the_feature():
    policy = {"delta.checkpointPolicy": "v2"}

    assert form_of(properties=policy, features=["v2Checkpoint"]).is_v2
    assert not form_of(properties=policy).is_v2
    assert not form_of(features=["v2Checkpoint"]).is_v2


def test_typed_partition_values_have_physical_names_and_no_statistics():
    form = form_of(
        column("a", "long", "col-1"),
        column("Day", "date", "col-2"),
        partition_by=["Day"],
        properties={"delta.columnMapping.mode": "name"},
    )

    typed = form.schema().field("add").type.field("partitionValues_parsed").type
    assert typed == pa.struct([("col-2", pa.date32())])
    assert bound_names(form) == ["col-1"]


@pytest.mark.parametrize("columns", ['[["b"]]', '["b"]'])
def test_clustering_columns_have_statistics_even_where_others_have_none(columns):
    form = form_of(
        column("a", "long"),
        column("b", "long"),
        properties={"delta.dataSkippingNumIndexedCols": "0"},
        domains={"delta.clustering": f'{{"clusteringColumns":{columns}}}'},
    )

    assert bound_names(form) == ["b"]


def test_only_tables_with_deletion_vectors_say_whether_bounds_are_tight():
    names = [member.name for member in form_of(features=["deletionVectors"]).statistics_struct]

    assert "tightBounds" in names
    assert "tightBounds" not in [member.name for member in form_of().statistics_struct]


def test_sidecars_hold_file_actions_only():
    form = form_of(properties={"delta.checkpointPolicy": "v2"}, features=["v2Checkpoint"])

    assert form.schema().names == ["add", "remove"]
