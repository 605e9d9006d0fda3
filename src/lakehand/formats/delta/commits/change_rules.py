"""What a change must look like before it may be committed: pure checks, read from top to bottom."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lakehand.errors import ProofError, RefusedError, ReplanError, ValidationError
from lakehand.formats.delta.commits.draft import changes_data
from lakehand.formats.delta.commits.head import Head, assigns_row_ids
from lakehand.formats.delta.commits.schema_change import evolved_metadata
from lakehand.formats.delta.protocol.actions import Metadata, dv_id, load_json
from lakehand.formats.delta.protocol.arrow_types import to_arrow
from lakehand.formats.delta.protocol.features import Operation, require_write, supported_features
from lakehand.formats.delta.protocol.schema import mapping_mode, parse_schema, physical_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakehand.model.work import Change, ChangeKind, DataFile, Refreshed, StagedFile

_OPERATIONS: dict[ChangeKind, Operation] = {
    "rewrite": "rewrite",
    "statistics": "rewrite",
    "append": "append",
    "overwrite": "append",
    "update": "append",
    "delete": "rewrite",
    "restore": "append",
    "metadata": "checkpoint",
}


_PARTS = ("replacements", "refreshed", "adds", "removes", "changes", "restored", "native")
_PARTS_OF: dict[ChangeKind, set[str]] = {
    "rewrite": {"replacements"},
    "statistics": {"refreshed"},
    "append": {"adds", "native"},
    "overwrite": {"adds", "removes", "native"},
    "update": {"adds", "removes", "changes"},
    "delete": {"adds", "removes", "changes"},
    "restore": {"removes", "restored", "native"},
    "metadata": {"native"},
}


def check_change(change: Change, head: Head) -> None:
    """Raise if `change` must not be committed to a table like `head`."""
    require_write(_OPERATIONS[change.kind], head.protocol, head.metadata, table=head.table)
    for check in _CHECKS:
        check(change, head)


def _is_for_this_table(change: Change, head: Head) -> None:
    """Refuse a change that was made for a table which has been replaced since."""
    if change.table_id is not None and change.table_id != head.metadata.id:
        raise ReplanError(
            f"{head.table} was deleted and recreated since version {change.base_version} of it"
            " was read",
            table=head.table,
            expected_version=change.base_version,
            hint="nothing was written; plan again on the new table",
        )


def _fits_its_kind(change: Change, head: Head) -> None:
    given = {name for name in _PARTS if getattr(change, name)}
    needs_one = change.kind != "metadata" and not (change.kind == "append" and change.transaction)
    if given - _PARTS_OF[change.kind] or (needs_one and not given):
        message = f"a change of kind {change.kind!r} cannot have these files, or has none"
        raise ValidationError(message, field="change", hint=f"nothing was written to {head.table}")


def _names_every_file_once(change: Change, head: Head) -> None:
    refreshed = [item.file for item in change.refreshed]
    roles = (
        ("removes", change.all_removes),
        ("adds", change.all_adds),
        ("refreshes", refreshed),
        ("restores", change.restored),
    )
    for role, files in roles:
        path, count = next(iter(Counter(file.path for file in files).most_common(1)), ("", 0))
        if count > 1:
            message = f"the change {role} {path!r} {count} times; {head.table} allows it once"
            raise ValidationError(message, field="change", value=path)


def _replaces_no_file_by_itself(change: Change, head: Head) -> None:
    live = {file.path: file.native["add"] for file in change.all_removes}
    for file in change.all_adds:
        if file.path not in live:
            continue
        before, after = (
            dv_id(entry.get("deletionVector")) for entry in (live[file.path], file.native)
        )
        if before == after:
            message = (
                f"the change removes {file.path!r} of {head.table} and adds it unchanged; readers"
                " could not tell which of the two holds"
            )
            raise ValidationError(message, field="change", value=file.path)


def _has_the_partition_values_of_the_table(change: Change, head: Head) -> None:
    expected = _partition_keys(head)
    for file in change.all_adds:
        found = set(file.native.get("partitionValues", {}))
        if found != expected:
            raise ValidationError(
                f"file {file.path!r} has partition values for {sorted(found)}, but {head.table} is"
                f" partitioned by {sorted(expected)}",
                field="partitionValues",
            )


def _partition_keys(head: Head) -> set[str]:
    mode = mapping_mode(head.metadata.configuration)
    schema = parse_schema(head.metadata.schema_string)
    columns = (schema.find(name) for name in head.metadata.partition_columns)
    return {physical_name(column, mode=mode) for column in columns if column is not None}


def _takes_nothing_from_the_table(change: Change, head: Head) -> None:
    """Refuse rows with columns and properties of an older version of the table.

    The new metadata must be exactly what evolution makes of the current one: ids of dropped columns
    are never reused, and comments and properties stay.
    """
    said = next((said["metaData"] for said in change.native if "metaData" in said), None)
    if said is None or change.kind not in {"append", "overwrite", "update"}:
        return
    columns = parse_schema(Metadata.from_json(said).schema_string)
    if evolved_metadata(head.metadata, to_arrow(columns)).to_json() != said:
        raise ReplanError(
            f"{head.table} has changed since these rows were written for it",
            table=head.table,
            expected_version=change.base_version,
            hint="nothing was written; try again on the newest version",
        )


def _counts_its_rows(change: Change, head: Head) -> None:
    """Refuse files without a row count where readers or row ids depend on it."""
    counted = "deletionVectors" in supported_features(head.protocol)
    if not (counted or assigns_row_ids(head.protocol, head.metadata)):
        return
    for file in change.all_adds:
        if _row_count(file) is None:
            message = (
                f"file {file.path!r} has no row count in its statistics; {head.table} needs it"
            )
            raise ValidationError(message, field="stats", value=file.path)


def _refreshes_statistics_alone(change: Change, head: Head) -> None:
    """Refuse an entry that differs from the live one by more, or counts other rows than it.

    A repair may also correct what the log says of the file's size and of its deleted rows.
    """
    allowed = {"stats"} if change.operation != "REPAIR" else {"stats", "size", "deletionVector"}
    for item in change.refreshed:
        before = item.file.native["add"].get("deletionVector")
        is_same = dv_id(item.native.get("deletionVector", before)) == dv_id(before)
        if not item.native or not set(item.native) <= allowed or not is_same:
            message = f"the change would alter more of {item.file.path!r} than its statistics"
            raise ValidationError(message, field="change", value=sorted(item.native))
        if "stats" not in item.native:
            continue
        count = _row_count(item)
        if count is None or count != (item.file.rows if item.file.rows is not None else count):
            raise ValidationError(
                f"{item.file.path!r} of {head.table} has {item.file.rows} rows, and {count} by its"
                " new statistics",
                field="stats",
                value=item.file.path,
            )


def _row_count(file: StagedFile | Refreshed) -> int | None:
    try:
        count = load_json(file.native["stats"])["numRecords"]
    except (KeyError, TypeError, ValueError):
        return None
    return count if isinstance(count, int) else None


def _keeps_every_row(change: Change, head: Head) -> None:
    """Refuse a rewrite whose counts alone show that rows were lost or made up."""
    for replacement in change.replacements:
        before = _visible_rows(replacement.removes)
        after = sum(file.rows for file in replacement.adds)
        if before is not None and before != after:
            raise ProofError(
                f"group {replacement.group} of {head.table} held {before} rows and would hold"
                f" {after}; nothing was changed"
            )


def _visible_rows(files: Sequence[DataFile]) -> int | None:
    total = 0
    for file in files:
        if file.rows is None:
            return None
        total += file.rows - file.deleted_rows
    return total


def _deletes_as_many_rows_as_it_says(change: Change, head: Head) -> None:
    """Refuse a change whose counts alone show that other rows went or came than it says."""
    said = _rows_fewer(change)
    before = _visible_rows(change.removes)
    if said is None or before is None:
        return
    gone = before - sum(file.rows for file in change.adds)
    if gone != said:
        raise ProofError(
            f"{said} rows of {head.table} were to be deleted, and {gone} would be; nothing was"
            " changed"
        )


def _rows_fewer(change: Change) -> int | None:
    """Return how many rows the metrics of a change say it deletes; None: they do not say."""
    metrics = change.metrics
    if change.kind == "delete":
        return metrics.get("numDeletedRows")
    if change.kind == "update" and "numTargetRowsDeleted" in metrics:
        return metrics["numTargetRowsDeleted"] - metrics["numTargetRowsInserted"]
    return None


def _keeps_what_must_be_kept(change: Change, head: Head) -> None:
    append_only = head.metadata.configuration.get("delta.appendOnly", "false").lower() == "true"
    if append_only and changes_data(change) and change.removes:
        raise RefusedError(
            f"{head.table} allows no rows to be removed or changed (delta.appendOnly)",
            table=head.table,
            operation=change.kind,
            feature="appendOnly",
            hint="nothing was written",
        )


def _tells_readers_of_changes(change: Change, head: Head) -> None:
    """Refuse an update whose files alone would tell of deletions and insertions instead."""
    feed = head.metadata.configuration.get("delta.enableChangeDataFeed", "false").lower()
    if feed != "true" or change.kind != "update" or change.changes:
        return
    kept = [change.metrics.get(f"numTargetRows{word}") for word in ("Updated", "Copied")]
    if kept != [0, 0]:
        raise RefusedError(
            f"{head.table} has a change data feed (delta.enableChangeDataFeed), and an update"
            " would have to write change files for it",
            table=head.table,
            operation=change.kind,
            feature="changeDataFeed",
            hint="nothing was written",
        )


_CHECKS: tuple[Callable[[Change, Head], None], ...] = (
    _is_for_this_table,
    _fits_its_kind,
    _names_every_file_once,
    _replaces_no_file_by_itself,
    _has_the_partition_values_of_the_table,
    _takes_nothing_from_the_table,
    _counts_its_rows,
    _refreshes_statistics_alone,
    _keeps_every_row,
    _deletes_as_many_rows_as_it_says,
    _keeps_what_must_be_kept,
    _tells_readers_of_changes,
)
