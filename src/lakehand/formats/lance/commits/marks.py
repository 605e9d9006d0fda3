"""Marks of writers that write exactly once.

Every marked commit has the marks of all writers in its properties, so the newest one tells all. As
old versions go, the marks are noted beside the table, too; a note that is behind is no harm while
the versions after it are there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakehand.errors import ObjectNotFoundError
from lakehand.formats.lance.commits.properties import read_properties
from lakehand.formats.lance.commits.records import unreadable
from lakehand.formats.lance.log.manifests import listed_versions
from lakehand.model.documents import DocumentError, parse_object, read_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.storage import Store

__all__ = ["LazyMarks", "keep_marks", "newest_marks", "note_marks"]

_NOTE = "_lakehand/marks.json"
_MARKS = "marks"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Note:
    """The marks of all writers, as of a version."""

    version: int
    marks: Mapping[str, int]


class LazyMarks(Mapping[str, int]):
    """The newest mark of every writer, looked for when the first one is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _found(self) -> dict[str, int]:
        return newest_marks(self._store)

    def __getitem__(self, application: str) -> int:
        return self._found[application]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def newest_marks(store: Store) -> dict[str, int]:
    """Return the newest mark of every writer."""
    marks, _ = _find(store)
    return marks


def note_marks(store: Store, properties: Mapping[str, Any], *, version: int) -> None:
    """Note what the commit of `version` says of all writers."""
    _put(store, properties[_MARKS], version)


def keep_marks(store: Store) -> None:
    """Note marks that are about to be lost with their versions."""
    marks, version = _find(store)
    if marks:
        _put(store, marks, version)


def _find(store: Store) -> tuple[dict[str, int], int]:
    noted, until = _read(store)
    newest = until
    for version in listed_versions(store):
        newest = max(newest, version)
        if version <= until:
            break
        found = read_properties(store, version).get(_MARKS)
        if found:
            return found, version
    return noted, newest


def _read(store: Store) -> tuple[dict[str, int], int]:
    try:
        note = read_value(_Note, parse_object(store.get(_NOTE)))
    except ObjectNotFoundError:
        return {}, 0
    except DocumentError as error:
        raise unreadable(f"{_NOTE} of {store.url}", error) from error
    return dict(note.marks), note.version


def _put(store: Store, marks: Mapping[str, int], version: int) -> None:
    store.put(_NOTE, json.dumps({"version": version, _MARKS: dict(marks)}).encode())
