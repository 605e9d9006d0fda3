"""Checkpoints: the whole state of one version in a few files, so that no reader starts at zero.

The files are written and read back first; `_last_checkpoint` is told of them last. A process that
dies in between leaves a log that reads as before: files that no reader uses, or a complete
checkpoint that readers find by listing.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakehand.errors import CorruptFileError, VersionNotFoundError
from lakehand.formats.delta.checkpoints.checkpoint_rows import action_rows, in_groups
from lakehand.formats.delta.checkpoints.content import CheckpointContent, open_content
from lakehand.formats.delta.checkpoints.files import (
    ActionFile,
    read_json,
    total_counts,
    verify_actions,
    write_json,
    write_parquet,
)
from lakehand.formats.delta.checkpoints.last_checkpoint import (
    CheckpointCheck,
    check_checkpoint,
    sidecar_keys,
    write_last_checkpoint,
)
from lakehand.formats.delta.log.listing import CheckpointFiles, LogSegment, find_segment, list_log
from lakehand.formats.delta.protocol.names import (
    SIDECAR_DIRECTORY,
    classic_checkpoint_key,
    sidecar_key,
    v2_checkpoint_key,
)
from lakehand.model.reports import CheckpointEntry
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import Clock, SystemClock
from lakehand.observe.steps import Step, reached

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakehand.storage import Store

#: File actions in one sidecar.
SIDECAR_ROWS = 50_000
#: How long the writer whose turn it is may take before others write the checkpoint.
_PATIENCE = timedelta(minutes=1)
_logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointReceipt:
    """What a checkpoint holds."""

    version: int
    kind: str
    #: Every file of it, sidecars included.
    keys: tuple[str, ...]
    bytes: int
    action_count: int
    add_count: int
    #: Whether it was written now; False: a complete one existed.
    is_new: bool
    #: Whether `_last_checkpoint` names it; False: it names a newer one.
    is_pointed_to: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def checkpoint_due(segment: LogSegment, interval: int) -> bool:
    """Say whether the newest complete checkpoint is `interval` or more commits behind."""
    newest = -1 if segment.checkpoint_version is None else segment.checkpoint_version
    return segment.version - newest >= interval


def list_checkpoints(store: Store) -> list[CheckpointEntry]:
    """Return all complete checkpoints, the newest and preferred first."""
    found = sorted(list_log(store).checkpoints, key=lambda one: one.rank, reverse=True)
    return [
        CheckpointEntry(
            version=one.version,
            kind=one.kind,
            files=one.keys,
            bytes=one.bytes,
            modified_at=one.modified_at,
        )
        for one in found
    ]


def read_checkpoint(store: Store, version: int | None) -> pa.Table:
    """Return the actions of the newest checkpoint, or of `version`, with those of its sidecars."""
    known = list_checkpoints(store)
    chosen = next((one for one in known if version in {None, one.version}), None)
    if chosen is None:
        versions = ", ".join(str(one.version) for one in known) or "none"
        raise VersionNotFoundError(
            f"{store.url} has no complete checkpoint{'' if version is None else f' of {version}'};"
            f" it has those of versions: {versions}",
            table=store.url,
            version=version,
            hint="`lakehand checkpoint` writes one",
        )
    try:
        keys = chosen.files
        tables = [_read_actions(store, key) for key in keys]
        if any("sidecar" in table.column_names for table in tables):
            tables += [_read_actions(store, key) for key in sidecar_keys(store, keys)]
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, ValueError) as error:
        message = (
            f"the checkpoint of version {chosen.version} of {store.url} cannot be read: {error}"
        )
        raise CorruptFileError(message, table=store.url, path=chosen.files[0]) from error


def _read_actions(store: Store, key: str) -> pa.Table:
    if key.endswith(".json"):
        return read_json(store, key)
    with store.open_reader(key) as source, pq.ParquetFile(source) as file:
        return file.read()


def checkpoint_if_due(
    store: Store, *, interval: int, committed_version: int | None = None, clock: Clock | None = None
) -> CheckpointReceipt | None:
    """Write a checkpoint of the newest version if one is due. Never raises.

    This follows a commit, which has happened whatever becomes of the checkpoint. A writer passes
    the version it committed, so that of many writers one writes the checkpoint and not all at once.
    """
    clock = clock or SystemClock()
    try:
        segment = find_segment(store)
        if not checkpoint_due(segment, interval):
            return None
        if committed_version is not None and not _has_turn(
            committed_version, segment, interval, now=clock.now()
        ):
            return None
        return write_checkpoint(store, version=segment.version, clock=clock)
    except Exception as error:  # noqa: BLE001  the commit stands, so its caller must not see this
        log_event(
            _logger,
            logging.WARNING,
            "checkpoint_failed",
            "No checkpoint of %s was written; the table is complete without it: %s",
            store.url,
            error,
            table=store.url,
            code=getattr(error, "code", type(error).__name__),
        )
        return None


def _has_turn(version: int, segment: LogSegment, interval: int, *, now: datetime) -> bool:
    """Say whether the writer of `version` is the one to write the checkpoint that is due.

    It is the one whose version completes an interval. If a minute later there still is none, that
    writer has failed or never tries, and the next one takes its turn.
    """
    newest = -1 if segment.checkpoint_version is None else segment.checkpoint_version
    if (version - newest) % interval == 0:
        return True
    due_since = segment.commit_modified_at.get(newest + interval)
    return due_since is None or now - due_since > _PATIENCE


def write_checkpoint(
    store: Store, *, version: int | None = None, clock: Clock | None = None
) -> CheckpointReceipt:
    """Write the checkpoint of `version` (the newest if None) unless a complete one exists.

    The pointer is updated in both cases, but never moved backwards.
    """
    segment, base = _sound_segment(store, version)
    found = base if base is not None and base.version == segment.version else None
    with open_content(store, segment, clock=clock or SystemClock()) as content:
        written = found or _write(store, content)
    reached(Step.CHECKPOINT_WRITTEN)
    is_pointed_to = write_last_checkpoint(store, written.pointer)
    reached(Step.CHECKPOINT_POINTED)
    receipt = CheckpointReceipt(
        version=written.version,
        kind=written.kind,
        keys=written.keys,
        bytes=written.bytes,
        action_count=sum(written.counts.values()),
        add_count=written.counts.get("add", 0),
        is_new=found is None,
        is_pointed_to=is_pointed_to,
    )
    _tell(store, receipt)
    return receipt


def _sound_segment(store: Store, version: int | None) -> tuple[LogSegment, CheckpointCheck | None]:
    """Return the files of `version` and its checkpoint, which is whole, or none.

    A new checkpoint must not be made from a damaged one: its loss would be there for good.
    """
    segment = find_segment(store, version=version)
    distrusted: set[str] = set()
    while segment.checkpoint is not None:
        check = check_checkpoint(store, segment.checkpoint)
        if check.problem is None:
            return segment, check
        _tell_distrust(store, segment.checkpoint, check.problem)
        distrusted.update(segment.checkpoint.keys)
        segment = find_segment(store, version=segment.version, distrusted=distrusted)
    return segment, None


def _write(store: Store, content: CheckpointContent) -> CheckpointCheck:
    files = _write_v2(store, content) if content.form.is_v2 else [_write_classic(store, content)]
    return CheckpointCheck(
        version=content.version,
        kind="v2" if content.form.is_v2 else "classic",
        keys=tuple(file.key for file in files),
        bytes=sum(file.bytes for file in files),
        counts=total_counts(files),
    )


def _write_classic(store: Store, content: CheckpointContent) -> ActionFile:
    schema = content.form.schema()
    rows = chain([action_rows(content.actions, schema)], content.file_rows())
    return _verified(
        store, write_parquet(store, classic_checkpoint_key(content.version), rows, schema)
    )


def _write_v2(store: Store, content: CheckpointContent) -> list[ActionFile]:
    """Write sidecars, then the top file that names them.

    The top file is JSON: it is small, keeps members of protocol and metadata that a fixed set of
    columns would lose, and is what delta-spark writes.
    """
    sidecars = list(_write_sidecars(store, content))
    reached(Step.CHECKPOINT_SIDECARS)
    key = v2_checkpoint_key(content.version, str(uuid4()), "json")
    actions = [
        ("checkpointMetadata", _checkpoint_metadata(content.version, sidecars)),
        *(("sidecar", _sidecar_action(store, sidecar)) for sidecar in sidecars),
        *content.actions,
    ]
    return [_verified(store, write_json(store, key, actions)), *sidecars]


def _write_sidecars(store: Store, content: CheckpointContent) -> Iterator[ActionFile]:
    schema = content.form.schema()
    parts = in_groups(content.file_rows(), SIDECAR_ROWS)
    for number, rows in enumerate(parts, start=1):
        name = f"{content.version:020d}.checkpoint.{number:010d}.{uuid4()}.parquet"
        yield _verified(store, write_parquet(store, sidecar_key(name), [rows], schema))


def _verified(store: Store, written: ActionFile) -> ActionFile:
    verify_actions(store, written)
    return written


def _checkpoint_metadata(version: int, sidecars: Sequence[ActionFile]) -> dict[str, Any]:
    counts = total_counts(sidecars)
    tags = {
        "sidecarNumActions": counts.total(),
        "sidecarSizeInBytes": sum(sidecar.bytes for sidecar in sidecars),
        "numOfAddFiles": counts["add"],
    }
    return {"version": version, "tags": {name: str(value) for name, value in tags.items()}}


def _sidecar_action(store: Store, sidecar: ActionFile) -> dict[str, Any]:
    modified_at = store.head(sidecar.key).modified_at
    return {
        "path": sidecar.key.removeprefix(f"{SIDECAR_DIRECTORY}/"),
        "sizeInBytes": sidecar.bytes,
        "modificationTime": int(modified_at.timestamp() * 1000),
    }


def _tell_distrust(store: Store, checkpoint: CheckpointFiles, problem: str) -> None:
    log_event(
        _logger,
        logging.WARNING,
        "checkpoint_ignored",
        "Ignoring the checkpoint of version %d of %s, which is not whole: %s",
        checkpoint.version,
        store.url,
        problem,
        table=store.url,
        version=checkpoint.version,
    )


def _tell(store: Store, receipt: CheckpointReceipt) -> None:
    log_event(
        _logger,
        logging.INFO,
        "checkpoint_written" if receipt.is_new else "checkpoint_found",
        "Checkpoint of version %d of %s: %d actions in %d files",
        receipt.version,
        store.url,
        receipt.action_count,
        len(receipt.keys),
        table=store.url,
        version=receipt.version,
        bytes=receipt.bytes,
    )
