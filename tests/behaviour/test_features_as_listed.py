"""Every operation does with every table feature what the table of features says of it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakehand import open_table
from lakehand.errors import RefusedError
from lakehand.formats.delta.protocol.features import FEATURES, Verdict
from support.forced_compactions import compact_here
from support.hand_made_tables import add_by_hand
from support.hand_written_logs import field, metadata, protocol
from support.protocol_features import ALL
from support.small_tables import commit_by_hand, fingerprint
from support.tasks_here import run_tasks_here

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
VARIANT = field("v", "variant")
#: What makes a table use a feature that is refused only then: a column, or properties.
COLUMNS = {
    "identityColumns": field("n", "long", **{"delta.identity.start": 1}),
    "variantType": VARIANT,
    "variantType-preview": VARIANT,
    "variantShredding": VARIANT,
    "variantShredding-preview": VARIANT,
}
PROPERTIES = {
    "icebergCompatV1": {"delta.enableIcebergCompatV1": "true"},
    "icebergCompatV2": {"delta.enableIcebergCompatV2": "true"},
    "icebergCompatV3": {"delta.enableIcebergCompatV3": "true"},
    "icebergWriterCompatV1": {"delta.enableIcebergWriterCompatV1": "true"},
    "icebergWriterCompatV3": {"delta.enableIcebergWriterCompatV3": "true"},
    "coordinatedCommits-preview": {"delta.coordinatedCommits.commitCoordinator-preview": "x"},
}
#: Features that ask for others, as the protocol says.
REQUIRED = {
    "rowTracking": ("domainMetadata",),
    "clustering": ("domainMetadata",),
    "variantShredding": ("variantType",),
    "variantShredding-preview": ("variantType",),
}
OPERATIONS = {
    "inspect": lambda path: open_table(path).inspect(),
    "read": lambda path: open_table(path).to_arrow(),
    "checkpoint": lambda path: open_table(path).checkpoint(),
    "append": lambda path: open_table(path).append(ROWS),
    "rewrite": compact_here,
    "vacuum": lambda path: open_table(path).vacuum(dry_run=True),
}


#: Features that no operation ever refuses on a table that does not use them.
HARMLESS = [
    name
    for name, feature in FEATURES.items()
    if all(feature.verdict(op) is not Verdict.REFUSED for op in OPERATIONS)
]


def make(path, *features, is_active):
    names = {*features, *(other for name in features for other in REQUIRED.get(name, ()))}
    readers = [name for name in names if FEATURES[name].is_reader_feature]
    used = features if is_active else ()
    columns = [field("id", "long"), *(COLUMNS[name] for name in used if name in COLUMNS)]
    properties = {key: value for name in used for key, value in PROPERTIES.get(name, {}).items()}
    (path / "_delta_log").mkdir(parents=True)
    commit_by_hand(
        path,
        protocol(*names.difference(readers), reader=readers),
        metadata(*columns, properties=properties),
    )
    add_by_hand(path, ROWS)
    add_by_hand(path, ROWS)
    return path


def refusing(path):
    """Return the operations that are refused, each with the feature that the error names."""
    refused = {}
    for operation, run in OPERATIONS.items():
        before = fingerprint(path)
        try:
            run(path)
        except RefusedError as error:
            refused[operation] = error.attributes["feature"]
            unchanged = fingerprint(path)
            assert unchanged == before, operation
    return refused


def test_every_feature_of_the_delta_project_is_listed_and_no_other():
    listed = {name: feature.is_reader_feature for name, feature in FEATURES.items()}
    assert listed == ALL


def test_features_that_are_never_refused_do_not_hinder_any_operation(tmp_path, monkeypatch):
    run_tasks_here(monkeypatch)
    assert refusing(make(tmp_path / "t", *HARMLESS, is_active=False)) == {}


@pytest.mark.parametrize("name", sorted(ALL.keys() - set(HARMLESS)))
def test_a_feature_is_refused_by_name_where_it_is_listed_as_refused(tmp_path, name, monkeypatch):
    run_tasks_here(monkeypatch)
    path = make(tmp_path / "t", name, is_active=False)
    expected = [op for op in OPERATIONS if FEATURES[name].verdict(op) is Verdict.REFUSED]

    assert refusing(path) == dict.fromkeys(expected, name)


@pytest.mark.parametrize("name", [*COLUMNS, *PROPERTIES])
def test_a_feature_in_use_is_refused_where_it_is_listed_as_refused_while_active(
    tmp_path, name, monkeypatch
):
    run_tasks_here(monkeypatch)
    path = make(tmp_path / "t", name, is_active=True)
    expected = [op for op in OPERATIONS if FEATURES[name].verdict(op) is not Verdict.SUPPORTED]

    found = refusing(path)

    assert list(found) == expected
    assert expected
    assert set(found.values()) <= {name, *REQUIRED.get(name, ())}


def test_every_conditional_refusal_is_tried():
    conditional = {
        name
        for name, feature in FEATURES.items()
        if any(feature.verdict(op) is Verdict.UNLESS_ACTIVE for op in OPERATIONS)
    }
    assert conditional == COLUMNS.keys() | PROPERTIES.keys()


@pytest.mark.parametrize("name", ["catalogManaged", "catalogOwned-preview"])
def test_tables_that_a_catalog_manages_are_refused_with_advice(tmp_path, name):
    path = make(tmp_path / "t", name, is_active=False)
    with pytest.raises(RefusedError, match="commits go through a catalog") as caught:
        open_table(path).compact()
    assert "an engine that commits through it" in caught.value.hint
