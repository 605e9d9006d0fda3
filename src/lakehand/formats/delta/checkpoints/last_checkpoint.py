"""`_last_checkpoint`: the hint where the newest checkpoint is. A hint, never the truth."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lakehand.errors import ObjectNotFoundError
from lakehand.formats.delta.checkpoints.hadoop_sums import delete_hadoop_sum
from lakehand.formats.delta.protocol.names import LAST_CHECKPOINT_KEY
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.storage import Store

__all__ = ["LastCheckpoint", "canonical_md5", "read_last_checkpoint", "write_last_checkpoint"]

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
