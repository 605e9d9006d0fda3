"""Whether a checkpoint is complete, and `_last_checkpoint`: a hint, never the truth."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from lakehand.errors import CorruptFileError, ObjectNotFoundError, UnsafePathError
from lakehand.formats.delta.checkpoints.files import (
    ActionFile,
    count_actions,
    delete_hadoop_sum,
    total_counts,
)
from lakehand.formats.delta.protocol.actions import checked_action, load_json
from lakehand.formats.delta.protocol.names import LAST_CHECKPOINT_KEY, sidecar_key
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakehand.formats.delta.log.listing import CheckpointFiles
    from lakehand.storage import Store


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
            files += [count_actions(store, key) for key in sidecar_keys(store, checkpoint.keys)]
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


def sidecar_keys(store: Store, keys: Iterable[str]) -> list[str]:
    """Return the sidecars that files of a checkpoint name."""
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


_logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class LastCheckpoint:
    """What `_last_checkpoint` says. Only `version` is always known."""

    version: int
    #: Actions in the checkpoint; None where the writer did not count them.
    action_count: int | None = None
    #: Number of files of a multi-part checkpoint; None for the other kinds.
    part_count: int | None = None
    size_bytes: int | None = None
    add_count: int | None = None

    def to_json(self) -> str:
        """Return the document with its checksum.

        `version` and `size` come first because old readers may see only the start of the file.
        There is no `checkpointSchema` and no `v2Checkpoint`: readers would trust them instead of
        the checkpoint itself.
        """
        fields: dict[str, Any] = {
            "version": self.version,
            "size": -1 if self.action_count is None else self.action_count,
            "parts": self.part_count,
            "sizeInBytes": self.size_bytes,
            "numOfAddFiles": self.add_count,
        }
        known = {name: value for name, value in fields.items() if value is not None}
        return _compact({**known, "checksum": canonical_md5(_compact(known))})


def read_last_checkpoint(store: Store) -> LastCheckpoint | None:
    """Return the hint; None if there is none or if it cannot be trusted."""
    try:
        data = store.get(LAST_CHECKPOINT_KEY)
    except ObjectNotFoundError:
        return None
    try:
        return _parse(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        log_event(
            _logger,
            logging.WARNING,
            "last_checkpoint_ignored",
            "Ignoring %s of %s, so the log is listed from its start: %s",
            LAST_CHECKPOINT_KEY,
            store.url,
            error,
            table=store.url,
        )
        return None


def write_last_checkpoint(store: Store, pointer: LastCheckpoint) -> bool:
    """Point readers to `pointer` unless they already look at a newer version; say which."""
    current = read_last_checkpoint(store)
    if current is not None and current.version > pointer.version:
        return False
    delete_hadoop_sum(store, LAST_CHECKPOINT_KEY)
    store.put(LAST_CHECKPOINT_KEY, pointer.to_json().encode("utf-8"))
    return True


def canonical_md5(document: str) -> str:
    """Return the checksum of a JSON object: md5 over its leaves in canonical order.

    The member `checksum` of the object itself is left out; ValueError on invalid JSON and on
    duplicate names.

    >>> canonical_md5('{"b": 1, "a": "x y"}') == hashlib.md5(b'"a"="x%20y","b"=1').hexdigest()
    True
    """
    fields = _object(document)
    fields.pop("checksum", None)
    pairs = sorted(f"{'+'.join(path)}={value}".encode() for path, value in _leaves(fields))
    return hashlib.md5(b",".join(pairs), usedforsecurity=False).hexdigest()


class _Number(str):
    """A number as it is spelled in the document; its spelling goes into the checksum."""

    __slots__ = ()


def _parse(document: str) -> LastCheckpoint:
    fields = _object(document)
    stated = fields.get("checksum")
    if stated is not None and stated != canonical_md5(document):
        raise ValueError("its checksum does not match its content")
    version = _integer(fields, "version")
    if version is None or version < 0:
        raise ValueError("it names no version")
    action_count = _integer(fields, "size")
    return LastCheckpoint(
        version=version,
        action_count=None if action_count == -1 else action_count,
        part_count=_integer(fields, "parts"),
        size_bytes=_integer(fields, "sizeInBytes"),
        add_count=_integer(fields, "numOfAddFiles"),
    )


def _object(document: str) -> dict[str, Any]:
    parsed = json.loads(
        document,
        object_pairs_hook=_without_duplicates,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_refuse_constant,
    )
    if not isinstance(parsed, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  callers expect ValueError
    return parsed


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("it names a member twice")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _integer(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, _Number):
        raise ValueError(f"its member {name!r} is not a number")  # noqa: TRY004  as above
    return int(value)


def _leaves(value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from (((_quoted(name), *path), leaf) for path, leaf in _leaves(member))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from (((str(index), *path), leaf) for path, leaf in _leaves(element))
    else:
        yield (), _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="-._~")}"'


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
