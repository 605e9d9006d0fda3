"""Deduplication: of rows that count as one, one stays, and readers see exactly the others."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakehand
from lakehand.rows import deduplicate as story
from support.deduplications import (
    PROPERTIES,
    append,
    contents,
    deduplicate_inline,
    extra_copies,
    kept,
    once_at,
    rows,
)
from support.rows import assert_same_rows, delta_rs_rows, lakehand_rows
from support.small_tables import fingerprint

BATCHES = (
    [(1, 5, 0), (2, None, 1), (None, 1, 2)],
    [(1, 7, 3), (2, 4, 4), (3, 0, 5)],
    [(None, 0, 6), (2, 4, 7), (1, 6, 8)],
)
KINDS = list(PROPERTIES)
FEW = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def make(path, batches=BATCHES, kind="copies", **properties):
    for batch in batches:
        append(path, rows(*batch), configuration={**PROPERTIES[kind], **properties})
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", ["first", "last", "latest"])
def test_one_row_of_each_key_stays(tmp_path, kind, keep):
    path = make(tmp_path / "t", kind=kind)
    order_by = "at" if keep == "latest" else None

    report = deduplicate_inline(path, key=["id"], keep=keep, order_by=order_by)

    assert contents(path) == kept(BATCHES, keep=keep)
    assert_same_rows(delta_rs_rows(path), lakehand_rows(path))
    assert (report.outcome, report.version, report.duplicates_removed) == ("committed", 3, 5)
    assert (report.rows_before, report.rows_after) == (9, 4)
    assert report.duplicate_distribution == extra_copies(BATCHES)
    assert report.max_duplicates_per_key == 3


def test_a_null_order_never_wins_over_a_value_and_ties_go_to_the_last(tmp_path):
    batches = [[(1, 3, 0), (2, None, 1)], [(1, None, 2), (2, None, 3)], [(1, 3, 4)]]
    path = make(tmp_path / "t", batches)

    deduplicate_inline(path, key=["id"], keep="latest", order_by="at")

    assert contents(path) == [(1, 3, 4), (2, None, 3)]


@pytest.mark.parametrize("kind", KINDS)
def test_without_duplicates_nothing_is_committed(tmp_path, kind):
    path = make(tmp_path / "t", kind=kind)
    deduplicate_inline(path, key=["id"], keep="last")
    before = fingerprint(path)

    report = deduplicate_inline(path, key=["id"], keep="last")

    assert (report.outcome, report.version, report.proof) == ("nothing_to_do", 3, None)
    assert fingerprint(path) == before


def test_a_dry_run_says_what_would_go_and_writes_nothing(tmp_path):
    path = make(tmp_path / "t")
    before = fingerprint(path)

    report = deduplicate_inline(path, key=["id"], dry_run=True)

    assert (report.outcome, report.duplicates_removed, report.rows_after) == ("dry_run", 5, 4)
    assert fingerprint(path) == before


def test_a_file_that_loses_all_rows_goes(tmp_path):
    path = make(tmp_path / "t", [[(1, 0, 0)], [(1, 1, 1)]], kind="vectors")

    report = deduplicate_inline(path, key=["id"])

    assert contents(path) == [(1, 0, 0)]
    assert (report.files_removed, report.files_added, report.files_marked) == (1, 0, 0)


def test_files_without_duplicates_are_left_alone(tmp_path):
    path = make(tmp_path / "t", [[(1, 0, 0), (2, 0, 0)], [(3, 0, 0)], [(1, 1, 1), (4, 0, 0)]])
    untouched = set(DeltaTable(str(path), version=1).file_uris())

    deduplicate_inline(path, key=["id"])

    assert untouched <= set(DeltaTable(str(path)).file_uris())


def test_what_is_left_is_proved_and_can_be_verified(tmp_path):
    path = make(tmp_path / "t")

    report = deduplicate_inline(path, key=["id"], keep="last")
    found = lakehand.open_table(path, engine="local").verify(version=report.version)

    assert (report.proof.kind, report.proof.rows, report.proof.removed_rows) == ("digest", 1, 5)
    assert [check.outcome for check in found.proofs] == ["equal"]


BATCH = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 5)),
        st.one_of(st.none(), st.integers(0, 3)),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=8,
)


@FEW
@given(
    batches=st.lists(BATCH, min_size=1, max_size=3),
    late=BATCH,
    kind=st.sampled_from(KINDS),
    keep=st.sampled_from(["first", "last", "latest"]),
    phase=st.sampled_from(["hash", "rewrite", "commit"]),
    partitions=st.sampled_from([1, 3]),
)
def test_rows_appended_meanwhile_are_compared_too(
    tmp_path_factory, monkeypatch, batches, late, kind, keep, phase, partitions
):
    monkeypatch.setattr(story, "partitions_for", lambda *_args, **_options: partitions)
    path = make(tmp_path_factory.mktemp("t") / "t", batches, kind=kind)
    order_by = "at" if keep == "latest" else None
    added = once_at(phase, lambda: append(path, rows(*late)))

    report = deduplicate_inline(path, key=["id"], keep=keep, order_by=order_by, on_progress=added)

    if report.outcome == "committed":
        assert contents(path) == kept([*batches, late], keep=keep)
    deduplicate_inline(path, key=["id"], keep=keep, order_by=order_by)
    came = [*batches, late] if DeltaTable(str(path)).version() >= len(batches) else batches
    assert contents(path) == kept(came, keep=keep)
