"""One commit that gives a table the content of an earlier version again, as RESTORE writes it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import RefusedError
from lakehand.formats.delta.log.snapshot import DeltaState, file_keys
from lakehand.formats.delta.protocol.clustering import CLUSTERING_DOMAIN
from lakehand.formats.delta.protocol.features import (
    ROW_ID_PROPERTY,
    ROW_VERSION_PROPERTY,
    require_read,
    supported_features,
)
from lakehand.model.work import Change, DataFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.formats.delta.protocol.actions import Metadata
    from lakehand.model.snapshot import Snapshot

#: What the log itself depends on, whichever content the table has.
_KEPT = (
    "delta.enableInCommitTimestamps",
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
    ROW_ID_PROPERTY,
    ROW_VERSION_PROPERTY,
)
#: Ids of columns are never handed out twice, or old files would be read under new columns.
_NEVER_FALLS = "delta.columnMapping.maxColumnId"


def restoring_change(table: FormatTable, snapshot: Snapshot, wanted: Snapshot) -> Change:
    """Return the change from `snapshot`, the newest version, back to the content of `wanted`."""
    now, then = snapshot.native, wanted.native
    require_read(then.protocol, then.metadata, table=snapshot.table)
    _require_features(snapshot, wanted)
    live, kept = file_keys(snapshot.files), file_keys(wanted.files)
    removes = table.data_files(snapshot, _rows_beyond(live, kept))
    restored = table.data_files(wanted, _rows_beyond(kept, live))
    return Change(
        kind="restore",
        base_version=snapshot.version,
        operation="restore",
        parameters={"version": wanted.version},
        removes=removes,
        restored=restored,
        native=tuple(_descriptions(now, then)),
        table_id=snapshot.table_id,
        reads_rows=True,
        metrics=_metrics(removes, restored, wanted),
    )


def _require_features(snapshot: Snapshot, wanted: Snapshot) -> None:
    """Refuse what needs features that were dropped since: a protocol is raised by its owner only.

    A protocol with more features than the old version stays unchanged.
    """
    now, then = snapshot.native.protocol, wanted.native.protocol
    lost = sorted(set(supported_features(then)) - set(supported_features(now)))
    if lost:
        raise RefusedError(
            f"version {wanted.version} of {snapshot.table} needs {', '.join(lost)}, which the table"
            " has dropped since",
            table=snapshot.table,
            operation="restore",
            feature=lost[0],
            hint="nothing was written; enable the feature again, then restore",
        )


def _rows_beyond(keys: Sequence[Any], others: Sequence[Any]) -> list[int]:
    known = set(others)
    return [row for row, key in enumerate(keys) if key not in known]


def _descriptions(now: DeltaState, then: DeltaState) -> Iterator[Mapping[str, Any]]:
    metadata = restored_metadata(now.metadata, then.metadata)
    if metadata != now.metadata:
        yield {"metaData": metadata.to_json()}
    before, after = (state.domains.get(CLUSTERING_DOMAIN) for state in (now, then))
    if before != after:
        text = before if after is None else after
        domain = {"domain": CLUSTERING_DOMAIN, "configuration": text, "removed": after is None}
        yield {"domainMetadata": domain}


def restored_metadata(now: Metadata, then: Metadata) -> Metadata:
    """Return the metadata of `then`, but for what must go on as it is `now`."""
    kept = {name: now.configuration[name] for name in _KEPT if name in now.configuration}
    others = {name: value for name, value in then.configuration.items() if name not in _KEPT}
    marks = [side.configuration.get(_NEVER_FALLS) for side in (now, then)]
    highest = max((int(mark) for mark in marks if mark is not None), default=None)
    mark = {} if highest is None else {_NEVER_FALLS: str(highest)}
    return replace(then, id=now.id, configuration={**others, **kept, **mark})


def _metrics(
    removes: Sequence[DataFile], restored: Sequence[DataFile], wanted: Snapshot
) -> dict[str, int]:
    return {
        "numRestoredFiles": len(restored),
        "restoredFilesSize": sum(file.bytes for file in restored),
        "numRemovedFiles": len(removes),
        "removedFilesSize": sum(file.bytes for file in removes),
        "numOfFilesAfterRestore": wanted.files.num_rows,
        "tableSizeAfterRestore": sum(wanted.files["bytes"].to_pylist()),
    }
