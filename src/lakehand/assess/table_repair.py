"""Repairs findings of verify; never drops data without consent."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.assess.structure_check import Structure, check_structure
from lakehand.errors import CommitConflictError, CorruptFileError, RefusedError
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsLogRepair
from lakehand.model.quantities import format_count
from lakehand.model.remedies import (
    REMEDIES,
    REPAIR_DESCRIPTIONS,
    UNREPAIRABLE,
    Consent,
    FileRepair,
    chosen_remedy,
    why_refused,
)
from lakehand.model.verification import (
    DroppedFile,
    Refusal,
    Repair,
    RepairReport,
)
from lakehand.observe import reported
from lakehand.runs.operation import Call, CallOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakehand.model.snapshot import Snapshot
    from lakehand.model.verification import Finding, RepairOutcome
    from lakehand.model.work import DataFile
    from lakehand.settings import Settings


_ALL_LOST = (
    "all files of the table are missing, which is more likely a wrong location or wrong credentials"
    " than damage; restore them, or recreate the table"
)
_UNREADABLE = "the latest version cannot be read, so nothing can be committed"
_BLOCKED = "another problem of the file must be repaired first"


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairRequest:
    """Options of a repair."""

    #: What the caller accepts.
    consent: Consent = field(default_factory=Consent)
    #: Whether the rows of every file are decoded to find problems.
    deep: bool = False


@reported
def repair(
    table: FormatTable,
    *,
    settings: Settings,
    request: RepairRequest | None = None,
    **options: Unpack[CallOptions],
) -> RepairReport:
    """Verify a table, repair what can be repaired, and verify again."""
    call = Call.begin("repair", table, settings, options)
    request = request or RepairRequest()
    table = require_support(table, SupportsLogRepair, operation="repair")

    def look() -> Structure:
        return check_structure(call, deep=request.deep)

    before = look()
    log = table.repair_log(request.consent, dry_run=call.dry_run)
    is_changed = bool(log.repairs) and not call.dry_run
    files = _FileRepairs(table, look() if is_changed else before, request.consent)
    files.run(dry_run=call.dry_run)
    repairs = (*log.repairs, *files.repairs)
    after = look() if repairs and not call.dry_run else before
    return RepairReport(
        outcome=_outcome(before, repairs, dry_run=call.dry_run),
        table=table.store.url,
        version=after.log.version,
        findings=before.findings,
        repairs=repairs,
        refused=(*log.refused, *files.refused),
        files_dropped=tuple(files.dropped),
        rows_dropped=sum(file.rows or 0 for file in files.dropped),
        aside=log.aside,
        remaining=after.findings,
        dry_run=call.dry_run,
        duration_ms=call.watch.total_milliseconds(),
    )


def _outcome(before: Structure, repairs: Sequence[Repair], *, dry_run: bool) -> RepairOutcome:
    if dry_run:
        return "dry_run"
    if repairs:
        return "committed"
    return "refused" if before.findings else "nothing_to_do"


class _FileRepairs:
    """Repairs files, by commits to the table."""

    def __init__(self, table: SupportsLogRepair, structure: Structure, consent: Consent) -> None:
        self._table = table
        self._structure = structure
        self._consent = consent
        #: The latest version, as far as this repair knows.
        self._version = structure.log.readable_version
        self.repairs: list[Repair] = []
        self.refused: list[Refusal] = []
        self.dropped: list[DroppedFile] = []

    def run(self, *, dry_run: bool) -> None:
        found = [f for f in self._structure.findings if f.name in {*REMEDIES, *UNREPAIRABLE}]
        log = self._structure.log
        if found and log.readable_version != log.version and not dry_run:
            self._refuse(found, _UNREADABLE)
            return
        for repair, findings in self._chosen(found).items():
            self._try(findings, repair, dry_run=dry_run)

    def _chosen(self, found: Sequence[Finding]) -> dict[FileRepair, list[Finding]]:
        """Return the repairs and their findings; the others are refused."""
        by_path: dict[str | None, list[Finding]] = {}
        for finding in found:
            by_path.setdefault(finding.path, []).append(finding)
        chosen: dict[FileRepair, list[Finding]] = {}
        for findings in by_path.values():
            for finding, repair in self._of_one_file(findings):
                chosen.setdefault(repair, []).append(finding)
        lost = chosen.get("drop_files", [])
        if 1 < self._structure.files == len({finding.path for finding in lost}):
            self._refuse(chosen.pop("drop_files"), _ALL_LOST)
        return chosen

    def _of_one_file(self, findings: Sequence[Finding]) -> list[tuple[Finding, FileRepair]]:
        """Choose for one file: it is dropped, or all its problems are repaired."""
        offered = self._table.file_repairs
        remedies = [
            (finding, chosen_remedy(finding.name, self._consent, offered)) for finding in findings
        ]
        if any(remedy is not None and remedy.repair == "drop_files" for _, remedy in remedies):
            return [(finding, "drop_files") for finding in findings]
        is_blocked = any(remedy is None for _, remedy in remedies)
        for finding, remedy in remedies:
            if is_blocked:
                self._refuse([finding], None if remedy is None else _BLOCKED)
        if is_blocked:
            return []
        return [(finding, remedy.repair) for finding, remedy in remedies if remedy is not None]

    def _refuse(self, findings: Sequence[Finding], reason: str | None = None) -> None:
        """Record `findings` as not repaired; without a reason: because of a missing consent."""
        for finding in findings:
            why, consent = why_refused(finding.name, self._table.file_repairs)
            if reason is not None:
                why, consent = reason, ()
            self.refused.append(
                Refusal(name=finding.name, path=finding.path, reason=why, consent=consent)
            )

    def _try(self, findings: Sequence[Finding], repair: FileRepair, *, dry_run: bool) -> None:
        """Try a repair of `findings`; a refusal by the table is recorded."""
        try:
            self._repair(findings, repair, dry_run=dry_run)
        except (RefusedError, CorruptFileError) as error:
            self._refuse(findings, error.message)

    def _repair(self, findings: Sequence[Finding], repair: FileRepair, *, dry_run: bool) -> None:
        names = {f.path: f.name for f in findings if f.path}
        snapshot = self._snapshot(dry_run=dry_run)
        files = self._table.data_files(snapshot, _rows_of(snapshot, names))
        if not dry_run:
            self._table.require("rewrite", snapshot)
            change = self._table.repairing_change(snapshot, repair, files)
            receipt = self._table.commit(change, token=f"lakehand-repair-{uuid.uuid4()}")
            self._version = receipt.version
        if repair == "drop_files":
            self.dropped += [
                DroppedFile(path=f.path, name=names[f.path], rows=_rows(f)) for f in files
            ]
        self.repairs.append(_describe_repair(repair, files))

    def _snapshot(self, *, dry_run: bool) -> Snapshot:
        """Return the verified version; it must still be the latest to be changed."""
        snapshot = self._table.snapshot(version=self._version if dry_run else None)
        if snapshot.version != self._version:
            raise CommitConflictError(
                f"version {snapshot.version} of {snapshot.table} was committed during the repair",
                table=snapshot.table,
                actual_version=snapshot.version,
                hint="stop other writers, then repair again",
            )
        return snapshot


def _describe_repair(repair: FileRepair, files: Sequence[DataFile]) -> Repair:
    message, loses = REPAIR_DESCRIPTIONS[repair]
    rows = sum(_rows(file) or 0 for file in files)
    deleted = sum(file.deleted_rows for file in files)
    return Repair(
        name=repair,
        message=message.format(format_count(len(files), "file")),
        paths=tuple(file.path for file in files),
        loses=None if loses is None else loses.format(rows=rows, deleted=deleted),
    )


def _rows_of(snapshot: Snapshot, paths: Iterable[str]) -> list[int]:
    """Return the rows of the table of files with these `paths`."""
    chosen = pc.is_in(snapshot.files["path"], pa.array(sorted(paths), pa.string()))
    rows: list[int] = np.flatnonzero(chosen.to_numpy(zero_copy_only=False)).tolist()
    return rows


def _rows(file: DataFile) -> int | None:
    return None if file.rows is None else file.rows - file.deleted_rows
