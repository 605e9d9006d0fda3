"""The first line of a commit, as users of Delta and other engines read it."""

from __future__ import annotations

import json

import pytest

import lakehand
from lakehand.errors import ValidationError
from lakehand.formats.delta.commits.commit_info import encode_parameters
from lakehand.formats.delta.commits.draft import draft_commit
from lakehand.formats.delta.protocol.actions import parse_commit
from lakehand.model.work import Change, Proof
from support.changes import append, head, metadata, overwrite, protocol, replacement, rewrite


def info_of(change, base=None, *, now_ms=1_000):
    base = base or head()
    data = draft_commit(change, base, token="token", now_ms=now_ms)
    assert json.loads(data.split(b"\n")[0]).keys() == {"commitInfo"}
    return parse_commit(base.version + 1, data).commit_info


def test_the_first_line_says_who_did_what():
    info = info_of(append("a", "b"))

    assert info["operation"] == "WRITE"
    assert info["operationParameters"] == {"mode": "Append", "partitionBy": "[]"}
    assert info["engineInfo"] == f"lakehand/{lakehand.__version__}"
    assert (info["txnId"], info["readVersion"], info["timestamp"]) == ("token", 5, 1_000)


def test_parameters_are_encoded_as_delta_spark_does():
    given = {"predicate": [], "clusterBy": ("a", "b"), "auto": False, "mode": "Append", "n": 3}

    assert encode_parameters({**given, "left_out": None}) == {
        "predicate": "[]",
        "clusterBy": '["a","b"]',
        "auto": False,
        "mode": "Append",
        "n": 3,
    }


def test_a_rewrite_has_the_metrics_of_optimize_as_text():
    group = replacement(1, "a", "b", "c")

    metrics = info_of(rewrite(group))["operationMetrics"]

    assert metrics == {
        "numRemovedFiles": "3",
        "numRemovedBytes": "300",
        "numAddedFiles": "1",
        "numAddedBytes": "100",
        "numDeletionVectorsRemoved": "0",
        "minFileSize": "100",
        "p25FileSize": "100",
        "p50FileSize": "100",
        "p75FileSize": "100",
        "maxFileSize": "100",
    }


def test_percentiles_are_those_of_the_new_files():
    from dataclasses import replace

    from support.changes import staged_file

    sizes = [50, 10, 40, 20, 30]
    adds = tuple(staged_file(f"o{size}", size=size, rows=2) for size in sizes)
    group = replace(replacement(1, "a"), adds=adds)

    metrics = info_of(rewrite(group))["operationMetrics"]

    names = ("minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize")
    assert [metrics[name] for name in names] == ["10", "20", "30", "40", "50"]


def test_a_write_counts_files_rows_and_bytes():
    assert info_of(append("a", "b"))["operationMetrics"] == {
        "numFiles": "2",
        "numOutputRows": "20",
        "numOutputBytes": "200",
    }


def test_metrics_of_the_caller_come_on_top():
    change = Change(
        kind="metadata", base_version=5, operation="VACUUM START", metrics={"numFilesToDelete": 7}
    )

    assert info_of(change)["operationMetrics"] == {"numFilesToDelete": "7"}


@pytest.mark.parametrize(
    ("change", "level", "blind"),
    [
        (append("a"), "Serializable", True),
        (append("a", txn=("sink", 1)), "Serializable", True),
        (rewrite(replacement(1, "a")), "SnapshotIsolation", False),
        (overwrite(removes=("a",), adds=("b",)), "Serializable", False),
    ],
    ids=["append", "transaction", "rewrite", "overwrite"],
)
def test_isolation_and_blindness_follow_from_the_change(change, level, blind):
    info = info_of(change)

    assert (info["isolationLevel"], info["isBlindAppend"]) == (level, blind)


def evidence(rows, digest, **values):
    fields = {"kind": "digest", "algorithm": "a1", "engine": "e1", "bytes": 5, **values}
    return Proof(rows=rows, digest=digest, **fields).to_json()


def test_the_proof_is_the_sum_of_the_evidence():
    top, one = "f" * 16 + "0" * 15 + "1", "0" * 15 + "1" + "0" * 15 + "2"
    proof = {"1": evidence(10, top), "2": evidence(20, one)}

    stored = info_of(rewrite(replacement(1, "a"), replacement(2, "b"), proof=proof))

    assert stored["lakehand"]["proof"] == {
        "kind": "digest",
        "rows": 30,
        "digest": "0" * 31 + "3",
        "bytes": 10,
        "algorithm": "a1",
        "engine": "e1",
        "decoders": None,
        "removed_rows": 0,
        "removed_digest": None,
        "added_rows": 0,
        "added_digest": None,
        "positions_digest": None,
        "groups": 2,
    }


def test_evidence_of_different_kinds_has_no_common_digest():
    proof = {"1": evidence(10, "0" * 32), "2": evidence(20, "0" * 32, kind="ranges")}

    stored = info_of(rewrite(replacement(1, "a"), replacement(2, "b"), proof=proof))

    assert stored["lakehand"]["proof"]["kind"] == "mixed"
    assert stored["lakehand"]["proof"]["digest"] is None


def test_a_proof_that_would_bloat_the_log_is_refused():
    proof = {"1": evidence(10, None, engine="e" * 9_000)}

    with pytest.raises(ValidationError, match="8192 bytes"):
        info_of(rewrite(replacement(1, "a"), proof=proof))


TIMES = {
    "protocol": protocol("inCommitTimestamp"),
    "metadata": metadata(configuration={"delta.enableInCommitTimestamps": "true"}),
}


@pytest.mark.parametrize(("previous", "expected"), [(10, 1_000), (5_000, 5_001)])
def test_the_time_in_a_commit_never_goes_backwards(previous, expected):
    info = info_of(append("a"), head(in_commit_timestamp=previous, **TIMES))

    assert info["inCommitTimestamp"] == info["timestamp"] == expected


def test_tables_that_do_not_ask_for_it_get_no_time_in_the_commit():
    assert "inCommitTimestamp" not in info_of(append("a"))


def test_a_rewrite_says_that_row_ids_were_kept():
    tracked = {
        "protocol": protocol("rowTracking", "domainMetadata"),
        "metadata": metadata(configuration={"delta.enableRowTracking": "true"}),
    }

    info = info_of(rewrite(replacement(1, "a")), head(**tracked))

    assert info["tags"] == {"delta.rowTracking.preserved": "true"}
    assert "tags" not in info_of(append("a"), head(**tracked))
