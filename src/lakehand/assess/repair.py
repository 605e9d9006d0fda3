"""Repairing a table: look, set right what can be, and look again.

Nothing is lost without the caller's word for it. With it the table goes back to what can be read,
and files that are lost leave it in a commit that says so.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehand.assess.lost_pins import LOST_PIN
from lakehand.assess.structure import check_structure
from lakehand.errors import CommitConflictError, LakehandError, RefusedError
from lakehand.model.quantities import format_count
from lakehand.model.repair import DroppedFile, Refusal, Repair, RepairReport
from lakehand.model.work import Change, Refreshed
from lakehand.observe.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakehand.assess.structure import Structure
    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import Outcome
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.verification import Finding
    from lakehand.model.work import ChangeKind, DataFile
    from lakehand.observe import OnProgress
    from lakehand.observe.clock import Clock
    from lakehand.settings import Settings

__all__ = ["RepairRequest", "repair"]

#: Files whose rows nobody can read; what is left to do is to say so.
_LOST = frozenset(
    {
        "missing_file",
        "unreadable_footer",
        "missing_deletion_vector",
        "bad_deletion_vector",
        "unreadable_rows",
    }
)
_STATISTICS = "wrong_statistics"
#: Findings that nobody can set right from what the table has.
_UNREPAIRABLE = {
    "unreachable_file": "nobody knows whether the file is there",
    "wrong_size": "the file is not the one that was committed; only a backup has that one",
    "wrong_row_count": "the file is not the one that was committed; only a backup has that one",
    "duplicate_file": "nobody can say which of the entries is right",
    LOST_PIN: "who made the pin must say what to keep instead",
}
_ALL_LOST = (
    "all files of the table are lost, so this is more likely the wrong place, or a wrong key, than"
    " damage; bring them back, or create the table anew"
)
_NEEDS_CONSENT = "its rows would be given up; allow it with --accept-data-loss"


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairRequest:
    """How far a repair may go."""

    #: Whether what cannot be read may be given up.
    accept_data_loss: bool = False
    #: Whether the rows of every file are decoded to find what is wrong.
    deep: bool = False


def repair(
    table: FormatTable,
    *,
    settings: Settings,
    request: RepairRequest | None = None,
    spark: Any = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock | None = None,
) -> RepairReport:
    """Find what is wrong with a table, set right what can be, and look again."""
    clock = clock or SystemClock()
    request = request or RepairRequest()
    started = clock.monotonic()

    def look() -> Structure:
        return check_structure(
            table, settings=settings, deep=request.deep, spark=spark, on_progress=on_progress
        )

    before = look()
    consent = request.accept_data_loss
    log = table.repair_log(accept_data_loss=consent, dry_run=dry_run)
    is_changed = bool(log.repairs) and not dry_run
    files = _FileRepair(table, look() if is_changed else before, accept_data_loss=consent)
    files.run(dry_run=dry_run)
    repairs = (*log.repairs, *files.repairs)
    after = look() if repairs and not dry_run else before
    done: Outcome = "committed" if repairs else "nothing_to_do"
    return RepairReport(
        outcome="dry_run" if dry_run else done,
        table=table.store.url,
        version=after.log.version,
        findings=before.findings,
        repairs=repairs,
        refused=(*log.refused, *files.refused),
        files_dropped=tuple(files.dropped),
        rows_dropped=sum(file.rows or 0 for file in files.dropped),
        aside=log.aside,
        remaining=after.findings,
        dry_run=dry_run,
        duration_ms=(clock.monotonic() - started) * 1000,
    )


class _FileRepair:
    """Repairs what is wrong with files, in commits of the table."""

    def __init__(self, table: FormatTable, structure: Structure, *, accept_data_loss: bool) -> None:
        self._table = table
        self._structure = structure
        self._accept_data_loss = accept_data_loss
        self.repairs: list[Repair] = []
        self.refused: list[Refusal] = []
        self.dropped: list[DroppedFile] = []

    def run(self, *, dry_run: bool) -> None:
        found = [*_about_files(self._structure.findings)]
        lost = [finding for finding in found if finding.name in _LOST]
        wrong = [finding for finding in found if finding.name == _STATISTICS]
        gone = {finding.path for finding in lost} if self._accept_data_loss else set()
        log = self._structure.log
        if found and log.readable_version != log.version and not dry_run:
            self._refuse(found, "the newest version cannot be read, so nothing can be committed")
            return
        self._refuse([f for f in found if f.name in _UNREPAIRABLE and f.path not in gone])
        if 1 < self._structure.files == len({finding.path for finding in lost}):
            self._refuse(lost, _ALL_LOST)
        elif lost and self._accept_data_loss:
            self._try(lost, lambda: self._drop(lost, dry_run=dry_run))
        elif lost:
            self._refuse(lost, _NEEDS_CONSENT)
        if wrong:
            self._try(wrong, lambda: self._refresh(wrong, dry_run=dry_run))

    def _refuse(self, findings: Sequence[Finding], reason: str | None = None) -> None:
        self.refused += [
            Refusal(name=f.name, path=f.path, reason=reason or _UNREPAIRABLE[f.name])
            for f in findings
        ]

    def _try(self, findings: Sequence[Finding], action: Callable[[], None]) -> None:
        """Do something about `findings`; the table's own refusal is an answer."""
        try:
            action()
        except RefusedError as error:
            self._refuse(findings, error.message)

    def _snapshot(self, *, dry_run: bool) -> Snapshot:
        """Return the version that was looked at; to be changed it must still be the newest."""
        log = self._structure.log
        snapshot = self._table.snapshot(version=log.readable_version if dry_run else None)
        if snapshot.version != log.readable_version:
            raise CommitConflictError(
                f"version {snapshot.version} of {snapshot.table} was committed meanwhile",
                table=snapshot.table,
                actual_version=snapshot.version,
                hint="stop other writers, then repair again",
            )
        return snapshot

    def _drop(self, lost: Sequence[Finding], *, dry_run: bool) -> None:
        names = {f.path: f.name for f in lost if f.path}
        snapshot = self._snapshot(dry_run=dry_run)
        files = self._table.data_files(snapshot, _rows_of(snapshot, names))
        dropped = [DroppedFile(path=f.path, name=names[f.path], rows=_rows(f)) for f in files]
        if not dry_run:
            self._commit(snapshot, kind="delete", removes=files, parameters={"lost": len(files)})
        self.dropped += dropped
        rows = sum(file.rows or 0 for file in dropped)
        self.repairs.append(
            Repair(
                name="drop_files",
                message=f"take {format_count(len(dropped), 'lost file')} out of the table",
                paths=tuple(file.path for file in dropped),
                loses=f"{rows:,} rows, as far as the table says",
            )
        )

    def _refresh(self, wrong: Sequence[Finding], *, dry_run: bool) -> None:
        paths = [f.path for f in wrong if f.path]
        snapshot = self._snapshot(dry_run=dry_run)
        files = self._table.data_files(snapshot, _rows_of(snapshot, paths))
        if not dry_run:
            self._table.require("rewrite", snapshot)
            refreshed = tuple(_refreshed(self._table.worker(snapshot).refresh(files)))
            self._commit(snapshot, kind="statistics", refreshed=refreshed)
        message = f"compute the statistics of {format_count(len(paths), 'file')} anew"
        self.repairs.append(
            Repair(name="recompute_statistics", message=message, paths=tuple(paths))
        )

    def _commit(self, snapshot: Snapshot, *, kind: ChangeKind, **parts: Any) -> None:
        operation = "statistics" if kind == "statistics" else "REPAIR"
        change = Change(
            kind=kind,
            base_version=snapshot.version,
            table_id=snapshot.table_id,
            operation=operation,
            **parts,
        )
        self._table.commit(change, token=f"lakehand-repair-{uuid.uuid4()}")


def _about_files(findings: Sequence[Finding]) -> Iterator[Finding]:
    known = {*_LOST, *_UNREPAIRABLE, _STATISTICS}
    yield from (finding for finding in findings if finding.name in known)


def _rows_of(snapshot: Snapshot, paths: Iterable[str]) -> list[int]:
    """Return the rows of the table of files that are about `paths`."""
    chosen = pc.is_in(snapshot.files["path"], pa.array(sorted(paths), pa.string()))
    rows: list[int] = np.flatnonzero(chosen.to_numpy(zero_copy_only=False)).tolist()
    return rows


def _rows(file: DataFile) -> int | None:
    return None if file.rows is None else file.rows - file.deleted_rows


def _refreshed(found: Iterator[Refreshed | LakehandError]) -> Iterator[Refreshed]:
    for item in found:
        if isinstance(item, LakehandError):
            raise item
        if not item.is_known:
            yield item
