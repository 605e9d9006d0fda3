"""Whether a checkpoint is whole."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehand.errors import CorruptFileError, ObjectNotFoundError, UnsafePathError
from lakehand.formats.delta.checkpoints.files import ActionFile, count_actions, total_counts
from lakehand.formats.delta.checkpoints.last_checkpoint import LastCheckpoint
from lakehand.formats.delta.protocol.members import checked_action, load_json
from lakehand.formats.delta.protocol.names import sidecar_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakehand.formats.delta.log.listing import CheckpointFiles
    from lakehand.storage import Store

__all__ = ["CheckpointCheck", "check_checkpoint"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointCheck:
    """What a checkpoint holds, or why it cannot be used."""

    version: int
    kind: str
    #: Every file of it that was read, sidecars included.
    keys: tuple[str, ...]
    bytes: int = 0
    #: Number of actions by kind, over all files.
    counts: Mapping[str, int]
    #: None: the checkpoint is whole.
    problem: str | None = None

    @property
    def pointer(self) -> LastCheckpoint:
        """What `_last_checkpoint` says when it points here."""
        return LastCheckpoint(
            version=self.version,
            action_count=sum(self.counts.values()),
            part_count=len(self.keys) if self.kind == "multipart" else None,
            size_bytes=self.bytes,
            add_count=self.counts.get("add", 0),
        )


def check_checkpoint(store: Store, checkpoint: CheckpointFiles) -> CheckpointCheck:
    """Read a checkpoint and say whether it is whole. Nothing but an unreachable store raises."""
    files: list[ActionFile] = []
    try:
        files += [count_actions(store, key) for key in checkpoint.keys]
        if any(file.counts.get("sidecar") for file in files):
            files += [count_actions(store, key) for key in _sidecars(store, checkpoint.keys)]
        problem = _wrong_count(checkpoint, total_counts(files))
    except (CorruptFileError, ObjectNotFoundError, UnsafePathError) as error:
        problem = error.message
    return CheckpointCheck(
        version=checkpoint.version,
        kind=checkpoint.kind,
        keys=tuple(file.key for file in files),
        bytes=sum(file.bytes for file in files),
        counts=total_counts(files),
        problem=problem,
    )


def _wrong_count(checkpoint: CheckpointFiles, counts: Mapping[str, int]) -> str | None:
    obligatory = ["protocol", "metaData"]
    if checkpoint.kind == "v2" or counts.get("sidecar"):
        obligatory.append("checkpointMetadata")
    wrong = [f"{counts.get(kind, 0)} of {kind}" for kind in obligatory if counts.get(kind) != 1]
    return f"it holds {' and '.join(wrong)} where one is needed" if wrong else None


def _sidecars(store: Store, keys: Iterable[str]) -> list[str]:
    paths = chain.from_iterable(_sidecar_paths(store, key) for key in keys)
    return [sidecar_key(path) for path in paths]


def _sidecar_paths(store: Store, key: str) -> list[str]:
    try:
        return [checked_action("sidecar", found)["path"] for found in _sidecar_actions(store, key)]
    except ValueError as error:
        message = f"{key} of {store.url} cannot be read as part of a checkpoint: {error}"
        raise CorruptFileError(message, table=store.url, path=key) from error


def _sidecar_actions(store: Store, key: str) -> list[Any]:
    """Return the sidecars that a file names; its lines, or its columns, were read before."""
    if key.endswith(".json"):
        actions = [load_json(line) for line in store.get(key).splitlines() if line.strip()]
        return [action["sidecar"] for action in actions if action.get("sidecar") is not None]
    try:
        with store.open_reader(key) as source, pq.ParquetFile(source) as file:
            sidecars: list[Any] = file.read(columns=["sidecar"])["sidecar"].drop_null().to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        message = f"the sidecars in {key} of {store.url} cannot be read: {error}"
        raise CorruptFileError(message, table=store.url, path=key) from error
    return sidecars
