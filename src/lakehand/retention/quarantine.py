"""Files that are to be deleted, written down first: deleting them later can be called off.

_lakehand/quarantine/<id>/files.parquet    which files; they stay where they are
_lakehand/quarantine/<id>/manifest.json    when they may go; without it nothing is quarantined
_lakehand/quarantine/<id>/fate.json        `sweeping` or `undone`, whichever was put first
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehand import errors
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.observe.steps import Step, reached
from lakehand.parquet.footer import read_footer
from lakehand.retention.candidates import CANDIDATE_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakehand.observe.clock import Clock
    from lakehand.storage import Store

DIRECTORY = "_lakehand/quarantine"
#: A list of files without a manifest belongs to a run that died; a living one is faster than this.
_ABANDONED_AFTER = timedelta(days=1)

QuarantineFate = Literal["sweeping", "undone"]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Quarantine:
    """A list of files, and when they may be deleted."""

    id: str
    created_at: datetime
    sweep_after: datetime
    files: int
    bytes: int
    #: None while it can still be undone.
    fate: QuarantineFate | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "created_at": self.created_at.isoformat(),
            "sweep_after": self.sweep_after.isoformat(),
            "files": self.files,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Decided:
    """What was decided over a quarantine."""

    fate: QuarantineFate


def start_quarantine(
    store: Store, batches: Iterable[pa.RecordBatch], *, grace: timedelta, clock: Clock
) -> Quarantine | None:
    """Write down the files of `batches`; None if there are none."""
    now = clock.now()
    id_ = f"{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    count, size = _write_files(store, _key(id_, "files.parquet"), batches)
    reached(Step.QUARANTINE_LISTED)
    if not count:
        store.delete([_key(id_, "files.parquet")])
        return None
    quarantine = Quarantine(
        id=id_, created_at=now, sweep_after=now + grace, files=count, bytes=size
    )
    store.put_if_absent(_key(id_, "manifest.json"), json.dumps(quarantine.to_json()).encode())
    reached(Step.QUARANTINE_STARTED)
    return quarantine


def _write_files(store: Store, key: str, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    count = size = 0
    with (
        store.open_writer(key) as sink,
        pq.ParquetWriter(sink, CANDIDATE_SCHEMA, compression="zstd") as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
            size += pc.sum(batch["bytes"]).as_py() or 0
    return count, size


def list_quarantines(store: Store) -> list[Quarantine]:
    """Return what is in quarantine, oldest first, with what was decided over it."""
    ids = {info.key.split("/")[2] for info in store.list(DIRECTORY) if _is_manifest(info.key)}
    return [found for id_ in sorted(ids) if (found := find_quarantine(store, id_)) is not None]


def find_quarantine(store: Store, id_: str) -> Quarantine | None:
    """Return one quarantine; None if it is not, or no longer, there."""
    key = _key(id_, "manifest.json")
    try:
        found = _read(Quarantine, store, key)
    except errors.ObjectNotFoundError:
        return None
    if found.id != id_:
        raise _unreadable(store, key, f"it is of quarantine {found.id!r}")
    return replace(found, fate=_fate(store, id_))


def read_files(store: Store, quarantine: Quarantine) -> Iterator[pa.RecordBatch]:
    """Stream the files of a quarantine."""
    key = _key(quarantine.id, "files.parquet")
    try:
        read_footer(store, key)
        with store.open_reader(key) as source:
            for batch in pq.ParquetFile(source).iter_batches():
                yield batch.select(CANDIDATE_SCHEMA.names).cast(CANDIDATE_SCHEMA)
    except (pa.ArrowException, errors.CorruptFileError, OSError, KeyError) as error:
        raise _unreadable(store, key, str(error)) from error


def undo(store: Store, id_: str) -> Quarantine:
    """Call a quarantine off: its files stay. ValidationError if it is too late or unknown."""
    quarantine = find_quarantine(store, id_)
    if quarantine is None:
        known = [other.id for other in list_quarantines(store)]
        raise errors.ValidationError(
            f"{store.url} has no quarantine {id_!r}",
            field="undo",
            value=id_,
            hint=f"there are: {', '.join(known)}" if known else "nothing is in quarantine",
        )
    if decide(store, quarantine, "undone") != "undone":
        raise errors.ValidationError(
            f"the files of quarantine {id_} are being deleted already, or are gone",
            field="undo",
            value=id_,
            hint="verify the table; versions that need a deleted file can no longer be read",
        )
    drop(store, quarantine)
    return quarantine


def decide(store: Store, quarantine: Quarantine, fate: QuarantineFate) -> QuarantineFate | None:
    """Decide over a quarantine, unless that was done before; return what counts.

    None if the quarantine has ended, and its decision is no longer recorded.
    """
    key = _key(quarantine.id, "fate.json")
    try:
        store.put_if_absent(key, json.dumps({"fate": fate}).encode())
    except errors.ObjectExistsError:
        return _fate(store, quarantine.id)
    if not store.exists(_key(quarantine.id, "manifest.json")):
        # The fate of a quarantine is deleted last, so this one replaced another.
        store.delete([key])
        return None
    reached(Step.QUARANTINE_DECIDED)
    return fate


def drop(store: Store, quarantine: Quarantine) -> None:
    """Forget a quarantine. The manifest goes first: without it nothing is quarantined."""
    store.delete([_key(quarantine.id, "manifest.json")])
    reached(Step.QUARANTINE_DROPPED)
    store.delete([_key(quarantine.id, name) for name in ("files.parquet", "fate.json")])
    store.remove_empty_directories([_key(quarantine.id, "").rstrip("/")])


def drop_abandoned(store: Store, *, clock: Clock) -> None:
    """Remove lists without a manifest: their vacuum died before or after there was one."""
    infos = list(store.list(DIRECTORY))
    known = {info.key.split("/")[2] for info in infos if _is_manifest(info.key)}
    limit = clock.now() - _ABANDONED_AFTER
    store.delete(
        info.key
        for info in infos
        if info.key.split("/")[2] not in known and info.modified_at < limit
    )


def _fate(store: Store, id_: str) -> QuarantineFate | None:
    try:
        return _read(_Decided, store, _key(id_, "fate.json")).fate
    except errors.ObjectNotFoundError:
        return None


def _read(kind: type[T], store: Store, key: str) -> T:
    try:
        return read_value(kind, parse_object(store.get(key)))
    except DocumentError as error:
        raise _unreadable(store, key, str(error)) from error


def _unreadable(store: Store, key: str, reason: str) -> errors.RefusedError:
    directory = key.rpartition("/")[0]
    return errors.RefusedError(
        f"{key} of {store.url} cannot be read: {reason}",
        table=store.url,
        operation="vacuum",
        hint="nothing of it was deleted; another version of lakehand may have written it; delete"
        f" {directory} to give its files back, and a later vacuum finds them again",
    )


def _key(id_: str, name: str) -> str:
    return f"{DIRECTORY}/{id_}/{name}"


def _is_manifest(key: str) -> bool:
    return key.endswith("/manifest.json")
