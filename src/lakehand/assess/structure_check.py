"""Checks the log, the pins and every file of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.engine.exchange import pack_columns, unpack_columns
from lakehand.engine.runner_contract import results_of
from lakehand.errors import CorruptLogError, ValidationError, VersionNotFoundError
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsVerification
from lakehand.model.batches import sliced
from lakehand.model.remedies import LOST_PIN
from lakehand.model.verification import Finding, LogCheck
from lakehand.model.work import DataFile
from lakehand.observe import Progress
from lakehand.observe.clock import SystemClock
from lakehand.retention.pins import Pin, list_pins
from lakehand.runs.operation import Call, divide_files, open_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from lakehand.engine import TaskOutcome
    from lakehand.formats.worker import CheckWorker
    from lakehand.model.snapshot import Snapshot

MEANING = "a pin protects a version that cannot be read, so vacuum fails"
HINT = (
    "restore the version from a backup; otherwise remove the pin with `lakehand pin TABLE NAME"
    " --remove` before another commit gets its number, and pin an existing version"
)


def find_lost_pins(table: FormatTable, *, now: datetime) -> Iterator[Finding]:
    """Yield the active pins whose versions cannot be read, and one finding for unreadable pins."""
    try:
        pins = [pin for pin in list_pins(table.store) if pin.is_in_force(now)]
    except ValidationError as error:
        yield Finding(name=LOST_PIN, message=error.message, hint=error.hint or HINT)
        return
    for pin in pins:
        if pin.version is not None:
            yield from _lost(table, pin, pin.version)


def _lost(table: FormatTable, pin: Pin, version: int) -> Iterator[Finding]:
    try:
        table.snapshot(version=version)
    except (CorruptLogError, VersionNotFoundError) as error:
        message = f"pin {pin.name!r} protects version {version}: {error.message}"
        yield Finding(name=LOST_PIN, version=version, expected=pin.name, message=message, hint=HINT)


#: Up to this many files are checked in this process; starting tasks would take longer.
_FILES_HERE = 5_000
_FILES_PER_TASK = 1_000
#: Bytes read of a file without its rows.
_BYTES_READ_PER_FILE = 64 * 2**10
#: Maximum number of file entries in memory while rows are decoded.
_FILES_PER_ROUND = 10_000
_COLUMNS = ("path", "bytes", "rows", "deleted_rows", "native")
#: Number of columns whose bounds are compared with footers; more would show the same.
_COMPARED_COLUMNS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Structure:
    """What was checked, and its findings."""

    log: LogCheck
    files: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileTask:
    """A function from file entries to findings. Picklable."""

    worker: CheckWorker

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        found = self.worker.check_files(unpack_columns(payload["files"]))
        return {"findings": [finding.to_json() for finding in found]}


@dataclass(frozen=True, kw_only=True, slots=True)
class RowTask:
    """A function from files to findings in their rows. Picklable."""

    worker: CheckWorker

    def __call__(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        files = [DataFile.from_json(file) for file in payload["files"]]
        return {"findings": [finding.to_json() for finding in self.worker.check_rows(files)]}


def check_structure(call: Call, *, deep: bool = False) -> Structure:
    """Check the log, and the files of the latest readable version; `deep`: also their rows."""
    table = require_support(call.table, SupportsVerification, operation=call.operation)
    log = table.check_log()
    if log.readable_version is None:
        return Structure(log=log, files=0, findings=log.findings)
    snapshot = _snapshot(table, log.readable_version)
    check = _FileCheck(call, snapshot, table.worker(snapshot))
    entries = table.check_entries(snapshot)
    findings = [*log.findings, *entries, *_still_there(table, snapshot, check.files())]
    findings += _pins_lost_for_good(table)
    if deep:
        known = {finding.path for finding in findings if finding.path}
        findings += _still_there(table, snapshot, check.rows(skip=known))
    return Structure(log=log, files=snapshot.file_count, findings=tuple(findings))


def _snapshot(table: FormatTable, version: int) -> Snapshot:
    """Return a version with the bounds of a few columns, to compare with footers."""
    plain = table.snapshot(version=version)
    names = [field.name for field in plain.schema if _has_sure_bounds(field.type)]
    names = [name for name in names if name not in plain.partition_columns][:_COMPARED_COLUMNS]
    return table.snapshot(version=version, statistics=names) if names else plain


def _has_sure_bounds(kind: pa.DataType) -> bool:
    return bool(pat.is_integer(kind) or pat.is_date(kind) or pat.is_timestamp(kind))


def _still_there(
    table: FormatTable, snapshot: Snapshot, found: Sequence[Finding]
) -> Sequence[Finding]:
    """Return the findings of files that are still in the table unchanged.

    Other writers may have rewritten and vacuumed a file since the table was opened.
    """
    if not found:
        return ()
    newest = table.snapshot()
    if newest.version == snapshot.version:
        return found
    paths = pa.array(sorted({finding.path for finding in found if finding.path}), pa.string())
    now, then = (_entries(version, paths) for version in (newest, snapshot))
    return [finding for finding in found if now.get(finding.path) == then.get(finding.path)]


def _entries(snapshot: Snapshot, paths: pa.Array) -> dict[str | None, Any]:
    """Return the table's entries of some files, including their deletion vectors."""
    chosen = snapshot.files.filter(pc.is_in(snapshot.files["path"], paths))
    return {file["path"]: file for file in chosen.select(_COLUMNS).to_pylist()}


def _pins_lost_for_good(table: FormatTable) -> list[Finding]:
    """Return the findings of pins after a second check: they change with versions."""
    now = SystemClock().now()
    first = [*find_lost_pins(table, now=now)]
    return [pin for pin in find_lost_pins(table, now=now) if pin in first] if first else []


class _FileCheck:
    """Checks the files of one snapshot."""

    def __init__(self, call: Call, snapshot: Snapshot, worker: CheckWorker) -> None:
        self._call = call
        self._snapshot = snapshot
        self._worker = worker
        self._done = 0

    def files(self) -> list[Finding]:
        """Check every file in storage."""
        names = self._snapshot.files.column_names
        files = self._snapshot.files.select([*_COLUMNS, *({"bounds"} & set(names))])
        portions = sliced(files, _FILES_PER_TASK)
        if files.num_rows > _FILES_HERE:
            return self._files_in_tasks(portions)
        found: list[Finding] = []
        for portion in portions:
            found += self._worker.check_files(portion)
            self._count(portion.num_rows)
        return found

    def _files_in_tasks(self, portions: Sequence[pa.Table]) -> list[Finding]:
        payloads = [{"files": pack_columns(portion)} for portion in portions]
        task = FileTask(worker=self._worker)
        with open_tasks(
            self._call, read_bytes=self._snapshot.file_count * _BYTES_READ_PER_FILE
        ) as tasks:
            outcomes = tasks.outcomes(
                task, payloads, on_result=lambda _: self._count(_FILES_PER_TASK)
            )
        return _findings(outcomes)

    def rows(self, *, skip: set[str]) -> list[Finding]:
        """Decode the rows of all files but those in `skip`, which are known to be damaged."""
        damaged = pc.is_in(self._snapshot.files["path"], pa.array(sorted(skip), pa.string()))
        chosen = np.flatnonzero(~damaged.to_numpy(zero_copy_only=False))
        found: list[Finding] = []
        # Not of damaged files: a wrong size must not decide where the others are read.
        read_bytes = pc.sum(self._snapshot.files["bytes"].take(pa.array(chosen))).as_py() or 0
        task = RowTask(worker=self._worker)
        with open_tasks(self._call, read_bytes=read_bytes) as tasks:
            for start in range(0, len(chosen), _FILES_PER_ROUND):
                rows = chosen[start : start + _FILES_PER_ROUND].tolist()
                divided = divide_files(self._call.table.data_files(self._snapshot, rows))
                found += _findings(tasks.over_files("rows", task, divided))
        return found

    def _count(self, files: int) -> None:
        total = self._snapshot.file_count
        self._done = min(self._done + files, total)
        self._call.tell(Progress(phase="files", done=self._done, total=total, unit="files"))


def _findings(outcomes: Sequence[TaskOutcome]) -> list[Finding]:
    """Return what tasks found; an error says nothing about the files, and is raised."""
    results = results_of(outcomes)
    return [Finding.from_json(item) for result in results for item in result.get("findings", ())]
