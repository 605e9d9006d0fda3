"""The first line of every commit: who did what, in the words that users of Delta know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakehand._version import __version__
from lakehand.errors import ValidationError
from lakehand.formats.delta.commits.head import Head, preserves_row_ids
from lakehand.model.work import Change, Proof
from lakehand.prove.evidence import total_proof

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.delta.protocol.actions import Commit

ENGINE_INFO = f"lakehand/{__version__}"

#: Most bytes that our own part of a commit may have: every reader of the log carries them along.
OWN_BYTES_LIMIT = 8 * 1024

_PURGE = "purge"
_ROW_IDS_PRESERVED = {"delta.rowTracking.preserved": "true"}


def token_of(commit: Commit) -> str | None:
    """Return the token that a commit carries; other engines put their own there, or none."""
    token = (commit.commit_info or {}).get("txnId")
    return token if isinstance(token, str) else None


def is_purge(info: Mapping[str, Any]) -> bool:
    """Say whether a commit of lakehand rewrote files to erase what they held."""
    own = info.get("lakehand")
    return isinstance(own, dict) and own.get(_PURGE) is True


def commit_info(
    change: Change,
    head: Head,
    *,
    adds: Sequence[Mapping[str, Any]],
    removes: Sequence[Mapping[str, Any]],
    token: str,
    timestamp_ms: int,
) -> dict[str, Any]:
    """Return the `commitInfo` of a change that becomes the version after `head`.

    The types of known keys are those that other engines parse strictly; lakehand's values are
    under one separate key.
    """
    timestamps = {"timestamp": timestamp_ms}
    if head.uses_in_commit_timestamps:
        timestamps = {"inCommitTimestamp": timestamp_ms, **timestamps}
    info = {
        **timestamps,
        **_operation(change),
        "readVersion": change.base_version,
        "isolationLevel": _isolation_level(change, head),
        "isBlindAppend": _is_blind_append(change),
        "operationMetrics": operation_metrics(change, adds=adds, removes=removes),
        "engineInfo": ENGINE_INFO,
        "txnId": token,
    }
    if change.kind in {"rewrite", "delete", "update"} and preserves_row_ids(
        head.protocol, head.metadata
    ):
        info["tags"] = _ROW_IDS_PRESERVED
    own = _own_part(change) | ({_PURGE: True} if change.erases else {})
    return {**info, "lakehand": own} if own else info


def _operation(change: Change) -> dict[str, Any]:
    """Return the name that delta-spark uses for a verb of lakehand; other names do not change."""
    name, parameters = change.operation, change.parameters
    if name in {"compact", "cluster"}:
        where = parameters.get("where")
        columns = list(parameters.get("order") or ())
        is_curve = parameters.get("curve") == "zorder"
        name, parameters = (
            "OPTIMIZE",
            {
                "predicate": [where] if where else [],
                "zOrderBy": columns if is_curve else [],
                "clusterBy": [] if is_curve else columns,
                "auto": parameters.get("automatic", False),
            },
        )
    elif name == "statistics":
        where = parameters.get("where")
        name, parameters = "COMPUTE STATS", {"predicate": [where] if where else []}
    elif name in {"append", "overwrite"}:
        name, parameters = _write_operation(name, parameters)
    elif name in {"restore", "deduplicate"}:
        name = name.upper()
    elif name == "delete":
        where = parameters.get("where")
        name, parameters = "DELETE", {"predicate": [where] if where else []}
    elif name in {"upsert", "delete_keys"}:
        name, parameters = "MERGE", _upsert_parameters(parameters)
    elif name == "merge":
        name, parameters = "MERGE", _merge_parameters(parameters)
    return {"operation": name, "operationParameters": encode_parameters(parameters)}


def _merge_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a merge as delta-spark does."""
    return {
        "predicate": json.dumps(parameters["on"]),
        "matchedPredicates": parameters["matched"],
        "notMatchedPredicates": parameters["not_matched"],
        "notMatchedBySourcePredicates": parameters["not_matched_by_source"],
        **_writer(parameters),
    }


def _upsert_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Describe an upsert as the merge that would do the same."""
    names = [f"`{name.replace('`', '``')}`" for name in parameters["key"]]
    return {
        "predicate": json.dumps(" AND ".join(f"target.{name} <=> source.{name}" for name in names)),
        "matchedPredicates": [{"actionType": "update"}, {"actionType": "delete"}],
        "notMatchedPredicates": [{"actionType": "insert"}],
        "notMatchedBySourcePredicates": [],
        **_writer(parameters),
    }


def _writer(parameters: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(parameters[name]) for name in ("epoch", "writer") if name in parameters}


def _write_operation(name: str, parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name a write as delta-spark names batches, or micro-batches of streams."""
    mode = name.capitalize()
    if "epoch" in parameters:
        output = "Append" if name == "append" else "Complete"
        epoch, writer = str(parameters["epoch"]), parameters["writer"]
        return "STREAMING UPDATE", {"outputMode": output, "queryId": writer, "epochId": epoch}
    where = parameters.get("where")
    columns = parameters.get("partitionBy", ())
    return "WRITE", {"mode": mode, "partitionBy": list(columns), "predicate": where}


def encode_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Encode operation parameters as delta-spark does: lists and objects as JSON in a string.

    >>> encode_parameters({"zOrderBy": ["a"], "auto": False, "mode": "Append", "predicate": None})
    {'zOrderBy': '["a"]', 'auto': False, 'mode': 'Append'}
    """
    return {name: _encode(value) for name, value in parameters.items() if value is not None}


def _encode(value: Any) -> str | float | bool:
    if isinstance(value, str | bool | int | float):
        return value
    return json.dumps(
        list(value) if isinstance(value, tuple) else value,
        separators=(",", ":"),
        ensure_ascii=False,
    )


def operation_metrics(
    change: Change, *, adds: Sequence[Mapping[str, Any]], removes: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the numbers of a commit, under the names that delta-spark gives them."""
    if change.kind == "rewrite":
        metrics = _rewrite_metrics(adds, removes)
    elif change.kind == "statistics":
        metrics = {"numRefreshedFiles": len(adds)}
    elif change.kind in {"metadata", "restore"}:
        metrics = {}
    elif change.kind == "delete":
        metrics = _delete_metrics(change, adds, removes)
    elif change.kind == "update":
        metrics = _merge_metrics(change, adds, removes)
    else:
        metrics = _write_metrics(change, adds, removes)
    return {name: str(value) for name, value in {**metrics, **change.metrics}.items()}


def _rewrite_metrics(
    adds: Sequence[Mapping[str, Any]], removes: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    vectors = sum(1 for remove in removes if remove.get("deletionVector"))
    return {
        "numRemovedFiles": len(removes),
        "numRemovedBytes": _total_bytes(removes),
        "numAddedFiles": len(adds),
        "numAddedBytes": _total_bytes(adds),
        "numDeletionVectorsRemoved": vectors,
        **_size_percentiles(adds),
    }


def _size_percentiles(adds: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    sizes = sorted(int(add["size"]) for add in adds)
    if not sizes:
        return {}
    count = len(sizes)
    return {
        "minFileSize": sizes[0],
        "p25FileSize": sizes[count // 4],
        "p50FileSize": sizes[count // 2],
        "p75FileSize": sizes[count * 3 // 4],
        "maxFileSize": sizes[-1],
    }


def _write_metrics(
    change: Change, adds: Sequence[Mapping[str, Any]], removes: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    written = {
        "numFiles": len(adds),
        "numOutputRows": sum(file.rows for file in change.adds),
        "numOutputBytes": _total_bytes(adds),
    }
    if not removes:
        return written
    return {**written, "numRemovedFiles": len(removes), "numRemovedBytes": _total_bytes(removes)}


def _delete_metrics(
    change: Change, adds: Sequence[Mapping[str, Any]], removes: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Count added and removed files, without those that only got a deletion vector."""
    marked = {add["path"] for add in adds} & {remove["path"] for remove in removes}
    came = [add for add in adds if add["path"] not in marked]
    went = [remove for remove in removes if remove["path"] not in marked]
    before = [remove for remove in removes if remove.get("deletionVector")]
    updated = sum(1 for remove in before if remove["path"] in marked)
    return {
        "numRemovedFiles": len(went),
        "numRemovedBytes": _total_bytes(went),
        "numAddedFiles": len(came),
        "numAddedBytes": _total_bytes(came),
        "numDeletionVectorsAdded": len(marked),
        "numDeletionVectorsRemoved": len(before),
        "numDeletionVectorsUpdated": updated,
        "numAddedChangeFiles": len(change.changes),
    }


def _merge_metrics(
    change: Change, adds: Sequence[Mapping[str, Any]], removes: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Count the same for an upsert, under the names that merges have for it."""
    counted = _delete_metrics(change, adds, removes)
    renamed = {
        "numTargetFilesAdded": counted["numAddedFiles"],
        "numTargetFilesRemoved": counted["numRemovedFiles"],
        "numTargetBytesAdded": counted["numAddedBytes"],
        "numTargetBytesRemoved": counted["numRemovedBytes"],
        "numTargetChangeFilesAdded": counted["numAddedChangeFiles"],
    }
    vectors = ("Added", "Removed", "Updated")
    return renamed | {
        f"numTargetDeletionVectors{word}": counted[f"numDeletionVectors{word}"] for word in vectors
    }


def _total_bytes(actions: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(action.get("size") or 0) for action in actions)


def _isolation_level(change: Change, head: Head) -> str:
    if change.kind in {"rewrite", "statistics", "metadata"}:
        return "SnapshotIsolation"
    asked = head.metadata.configuration.get("delta.isolationLevel")
    # Other engines fail on a commit that names a level they do not know.
    return "WriteSerializable" if asked == "WriteSerializable" else "Serializable"


def _is_blind_append(change: Change) -> bool:
    reads = change.reads_rows or change.removes or change.replacements
    return change.kind in {"append", "metadata"} and not reads


def _own_part(change: Change) -> dict[str, Any]:
    """Return what lakehand stores in addition: the evidence that the rows are the same."""
    proofs = [Proof.from_json(evidence) for evidence in (change.proof or {}).values()]
    total = total_proof(proofs)
    if total is None:
        return {}
    own = {"proof": {**total.to_json(), "groups": len(proofs)}}
    size = len(json.dumps(own, separators=(",", ":")).encode())
    if size > OWN_BYTES_LIMIT:
        raise ValidationError(
            f"the proof of a commit may take {OWN_BYTES_LIMIT} bytes of the log, not {size}",
            field="proof",
            hint="store totals in the commit, and the evidence by group in the run's ledger",
        )
    return own
