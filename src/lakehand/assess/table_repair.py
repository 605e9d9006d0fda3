"""Repairs findings of verify; never drops data without consent."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.assess.structure_check import LOST_PIN, Structure, check_structure
from lakehand.errors import CommitConflictError, CorruptFileError, RefusedError
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsLogRepair
from lakehand.model.quantities import format_count
from lakehand.model.verification import (
    Consent,
    DroppedFile,
    Refusal,
    Repair,
    RepairReport,
    option_of,
)
from lakehand.observe import reported
from lakehand.runs.operation import Call, CallOptions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakehand.model.snapshot import Snapshot
    from lakehand.model.verification import ConsentName, FileRepair, Finding, RepairOutcome
    from lakehand.model.work import DataFile
    from lakehand.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """One way to repair files."""

    repair: FileRepair
    #: The consent it needs; None: nothing is lost.
    consent: ConsentName | None = None
    #: The consequence of the consent, for a person who has to decide.
    effect: str = ""


_DROP = Remedy(
    repair="drop_files",
    consent="accept_data_loss",
    effect="removes the file from the table, with the loss of its rows",
)
_RESTORE = Remedy(
    repair="restore_deleted_rows",
    consent="restore_deleted_rows",
    effect="keeps the file and removes its deletion vector: deleted rows become visible again",
)
_ACCEPT = Remedy(
    repair="accept_changed_files",
    consent="accept_changed_files",
    effect="accepts the current file and recomputes its statistics: if it was replaced, the rows of"
    " the original are lost",
)
_COUNT = Remedy(repair="correct_deletion_count")
_RECOMPUTE = Remedy(repair="recompute_statistics")
_UNLIST = Remedy(repair="remove_duplicate_entries")

#: By the name of a finding; the first one with consent is used.
REMEDIES: Mapping[str, tuple[Remedy, ...]] = {
    "missing_file": (_DROP,),
    "unreadable_footer": (_DROP,),
    "unreadable_rows": (_DROP,),
    "missing_deletion_vector": (_RESTORE, _DROP),
    "bad_deletion_vector": (_RESTORE, _DROP),
    "wrong_deletion_count": (_COUNT,),
    "wrong_size": (_ACCEPT,),
    "wrong_row_count": (_ACCEPT,),
    "wrong_statistics": (_ACCEPT,),
    "unreadable_statistics": (_RECOMPUTE,),
    "duplicate_entry": (_UNLIST,),
}
_ONLY_A_BACKUP = "the file is not the committed one; restore that from a backup"
#: Findings that cannot be repaired with the data of the table.
UNREPAIRABLE: Mapping[str, str] = {
    "unreachable_file": "storage did not answer whether the file exists",
    "duplicate_file": "it is unknown which of the entries is correct; restore an earlier version",
    "wrong_file_checksum": "restore the file from a backup; if the file is correct and its checksum"
    " is not, delete the checksum file",
    LOST_PIN: "the owner of the pin must decide what to keep instead",
}


def chosen_remedy(name: str, consent: Consent, offered: Collection[FileRepair]) -> Remedy | None:
    """Return the repair of a finding; None: it needs another consent.

    `offered` are the repairs that the format of the table supports.
    """
    allowed = (remedy for remedy in _offered(name, offered) if consent.allows(remedy.consent))
    return next(allowed, None)


def why_refused(name: str, offered: Collection[FileRepair]) -> tuple[str, tuple[ConsentName, ...]]:
    """Return why a finding is not repaired, and which consents would change that."""
    remedies = _offered(name, offered)
    ways = {r.consent: f"{option_of(r.consent)} {r.effect}" for r in remedies if r.consent}
    if not ways:
        return UNREPAIRABLE.get(name, _ONLY_A_BACKUP), ()
    return "restore it from a backup; else " + "; or ".join(ways.values()), tuple(ways)


def _offered(name: str, offered: Collection[FileRepair]) -> list[Remedy]:
    return [remedy for remedy in REMEDIES.get(name, ()) if remedy.repair in offered]


_ALL_LOST = (
    "all files of the table are missing, which is more likely a wrong location or wrong credentials"
    " than damage; restore them, or recreate the table"
)
_UNREADABLE = "the latest version cannot be read, so nothing can be committed"
_BLOCKED = "another problem of the file must be repaired first"
#: Description of each repair, with the number of files, and what is lost.
_DESCRIPTIONS: Mapping[FileRepair, tuple[str, str | None]] = {
    "drop_files": ("remove {} from the table", "{rows:,} rows, as far as recorded"),
    "restore_deleted_rows": (
        "remove the deletion vectors of {}",
        "the deletion of rows: {deleted:,}, as far as recorded, become visible again",
    ),
    "accept_changed_files": (
        "accept the current {}: size and statistics are recomputed",
        "rows of the committed files, if they were replaced since",
    ),
    "correct_deletion_count": (
        "correct the number of deleted rows of {} to that of their deletion vectors",
        None,
    ),
    "recompute_statistics": ("recompute the statistics of {}", None),
    "remove_duplicate_entries": ("remove the entries of {} with other paths", None),
}


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
    message, loses = _DESCRIPTIONS[repair]
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
