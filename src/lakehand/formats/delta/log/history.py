"""What happened to a table: its commits, and what lies between two of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.formats.delta.log.commit_times import from_milliseconds, storage_times, version_at
from lakehand.formats.delta.log.commit_words import describe_metrics
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.formats.delta.protocol.actions import parse_commit_info
from lakehand.formats.delta.protocol.names import commit_key
from lakehand.model.history import Difference, HistoryEntry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import Store

__all__ = ["diff", "history", "rows_changed_since", "version_at"]

_COMMITS_AT_A_TIME = 64
_COMMITS_LOOKED_AT = 256


def history(store: Store, *, limit: int | None = None) -> list[HistoryEntry]:
    """Return the commits that are still in the log, newest first."""
    times = storage_times(list_log(store))
    versions = sorted(times, reverse=True)[:limit]
    entries: list[HistoryEntry] = []
    for start in range(0, len(versions), _COMMITS_AT_A_TIME):
        batch = versions[start : start + _COMMITS_AT_A_TIME]
        texts = store.get_many([commit_key(version) for version in batch])
        for version, text in zip(batch, texts, strict=True):
            info = parse_commit_info(version, text, table=store.url)
            entries.append(_entry(version, info, times[version]))
    return entries


def rows_changed_since(store: Store, moment: datetime) -> bool:
    """Say whether one of the newest commits, since `moment`, took rows away.

    Too many commits to read are those of a stream, and streams append: the newest ones tell.
    """
    times = storage_times(list_log(store))
    recent = sorted((version for version, at in times.items() if at >= moment), reverse=True)
    texts = store.get_many([commit_key(version) for version in recent[:_COMMITS_LOOKED_AT]])
    return any(_takes_rows_away(line) for text in texts for line in text.split(b"\n"))


def _takes_rows_away(line: bytes) -> bool:
    if not line.lstrip().startswith(b'{"remove"') and b'"remove"' not in line[:200]:
        return False
    try:
        action = json.loads(line).get("remove")
    except (ValueError, AttributeError):
        return True
    return isinstance(action, dict) and action.get("dataChange", True) is not False


def _entry(version: int, info: Mapping[str, Any], stored_at: datetime) -> HistoryEntry:
    own = info.get("lakehand")
    proof = own.get("proof") if isinstance(own, dict) else None
    claimed = info.get("inCommitTimestamp")
    metrics = _mapping(info.get("operationMetrics"))
    return HistoryEntry(
        version=version,
        at=stored_at if claimed is None else from_milliseconds(int(claimed)),
        operation=_text(info.get("operation")),
        parameters=_mapping(info.get("operationParameters")),
        metrics={name: str(value) for name, value in metrics.items()},
        summary=describe_metrics(metrics),
        engine=_text(info.get("engineInfo")),
        token=_text(info.get("txnId")),
        proof=proof if isinstance(proof, dict) else None,
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return what engines should write as an object; another shape is kept under one name."""
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"value": value}


def diff(store: Store, from_version: int, to_version: int) -> Difference:
    """Return which files `to_version` has and `from_version` has not, and the reverse."""
    old = load_snapshot(store, version=from_version)
    new = load_snapshot(store, version=to_version)
    old_keys, new_keys = _keys(old.files), _keys(new.files)
    return Difference(
        from_version=from_version,
        to_version=to_version,
        added=new.files.filter(pc.invert(pc.is_in(new_keys, old_keys))),
        removed=old.files.filter(pc.invert(pc.is_in(old_keys, new_keys))),
        schema_changed=_columns(old) != _columns(new),
        properties_changed=dict(old.properties) != dict(new.properties),
    )


def _columns(snapshot: Snapshot) -> tuple[Any, ...]:
    return snapshot.native.schema, snapshot.partition_columns


def _keys(files: pa.Table) -> pa.ChunkedArray:
    """Return one text for each file that tells it from all others: path and deletion vector."""
    vector = pc.struct_field(files["native"], "deletion_vector")
    parts = [pc.struct_field(vector, name) for name in ("storage_type", "path_or_inline", "offset")]
    texts = [files["path"], *(part.cast(pa.string()) for part in parts)]
    return pc.binary_join_element_wise(*texts, "\0", null_handling="replace", null_replacement="")
