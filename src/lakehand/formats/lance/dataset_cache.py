"""Versions of a dataset that a task has opened, and shallow clones of one."""

from __future__ import annotations

import base64
import shutil
import tempfile
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import pyarrow as pa

from lakehand.errors import ObjectNotFoundError, RefusedError, StorageError, VersionNotFoundError
from lakehand.formats.lance.connect import address, is_lance_failure, open_dataset, said
from lakehand.formats.lance.fragments import find_fragments, has_fragments, known_fragments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.model.snapshot import Snapshot
    from lakehand.model.table_head import TableHead
    from lakehand.model.work import DataFile
    from lakehand.storage import Store

_DIRECTORY = "_lakehand/clones"
#: No proof takes longer.
_FORGOTTEN = timedelta(days=1)


def open_clone(store: Store, dataset: Any, *, scratch: str | None = None) -> Any:
    """Return a clone of `dataset`, which is deleted when it is no longer used."""
    options = dict(store.connection_options()) or None
    if store.url.startswith("file://"):
        directory = tempfile.mkdtemp(prefix="lakehand-", dir=scratch)
        clone = dataset.shallow_clone(f"{directory}/clone", dataset.version)
        weakref.finalize(clone, shutil.rmtree, directory, ignore_errors=True)
        return clone
    prefix = f"{_DIRECTORY}/{uuid4().hex}"
    place = f"{address(store)}/{prefix}"
    clone = dataset.shallow_clone(place, dataset.version, storage_options=options)
    weakref.finalize(clone, _drop, store, prefix)
    return clone


def drop_old_clones(store: Store) -> None:
    """Delete clones of processes that have ended."""
    until = datetime.now(UTC) - _FORGOTTEN
    store.delete([info.key for info in store.list(_DIRECTORY) if info.modified_at < until])


def _drop(store: Store, prefix: str) -> None:
    with suppress(StorageError):
        store.delete([info.key for info in store.list(prefix)])


_COLUMNS = "columns"


def added_columns(store: Store, known: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """Return the columns of `wanted` that are new; RefusedError if known ones would change."""
    for column in known:
        index = wanted.get_field_index(column.name)
        if index >= 0 and wanted.field(index).type != column.type:
            raise _refused(
                store,
                f"column {column.name!r} cannot become {wanted.field(index).type} from"
                f" {column.type}: lakehand adds whole columns to Lance tables, and changes none",
            )
    new = [column.with_nullable(True) for column in wanted if column.name not in known.names]  # noqa: FBT003
    return pa.schema(new)


def evolved_dataset(store: Store, dataset: Any, added: pa.Schema) -> Any:
    """Return a dataset like `dataset` that has the columns `added`, too."""
    missing = [column for column in added if column.name not in dataset.schema.names]
    if not missing:
        return dataset
    clone = open_clone(store, dataset)
    try:
        clone.add_columns(pa.schema(missing))
    except BaseException as error:
        if not is_lance_failure(error):
            raise
        names = ", ".join(repr(column.name) for column in missing)
        raise _refused(store, f"Lance does not add {names}: {said(error, store)}") from None
    return clone


def told_columns(added: pa.Schema) -> Mapping[str, Any]:
    """Return what a commit must say to add columns."""
    return {_COLUMNS: base64.b64encode(added.serialize()).decode()}


def untold_columns(native: Sequence[Mapping[str, Any]]) -> pa.Schema | None:
    """Return the columns that a commit is to add; None if it adds none."""
    if not native:
        return None
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(native[0][_COLUMNS])))


def _refused(store: Store, why: str) -> RefusedError:
    return RefusedError(
        f"{store.url} does not take on these columns: {why}",
        table=store.url,
        operation="append",
        feature="evolution",
        hint="nothing was written",
    )


#: No version has this number: the one that has further columns.
_EVOLVED = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenVersions:
    """One version of a dataset, and others that are asked for. Picklable."""

    store: Store
    version: int
    #: Columns that this version has only once a commit under way has landed.
    added: pa.Schema | None = None
    #: Versions that were opened: a version does not change, and keeps what it has read of files.
    _opened: dict[int, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    #: The last inputs that were asked for, and what was found of them.
    _recent: deque[tuple[Sequence[DataFile], tuple[Any, list[Any]]]] = field(
        default_factory=lambda: deque(maxlen=1), init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot | TableHead) -> Self:
        return cls(store=store, version=snapshot.version)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without what was opened here."""
        return _opened_at, (type(self), self.store, self.version, self.added)

    @property
    def _dataset(self) -> Any:
        if self.added is None:
            return self._open(self.version)
        if _EVOLVED not in self._opened:
            base = self._open(self.version)
            self._opened[_EVOLVED] = evolved_dataset(self.store, base, self.added)
        return self._opened[_EVOLVED]

    def _open(self, version: int) -> Any:
        if version not in self._opened:
            self._opened[version] = open_dataset(self.store, version)
        return self._opened[version]

    def _at(self, inputs: Sequence[DataFile]) -> Any:
        """Return the version that `inputs` are of, as far as there is one that has them all."""
        dataset = self._named(inputs)
        return dataset if has_fragments(dataset, inputs) else open_dataset(self.store)

    def _named(self, inputs: Sequence[DataFile]) -> Any:
        """Return this worker's version, unless `inputs` name another."""
        version = max((file.native.get("version", self.version) for file in inputs), default=None)
        try:
            return self._open(version or self.version)
        except VersionNotFoundError as error:
            raise ObjectNotFoundError(error.message, path=self.store.url) from error

    def _found(self, inputs: Sequence[DataFile]) -> tuple[Any, list[Any]]:
        """Return the version that `inputs` are of, and their fragments in it.

        Later files are in the newest one.
        """
        if self._recent and self._recent[-1][0] is inputs:
            return self._recent[-1][1]
        dataset = self._named(inputs)
        fragments = known_fragments(dataset, inputs)
        if fragments is None:
            dataset = open_dataset(self.store)
            fragments = find_fragments(dataset, inputs, table=self.store.url)
        found = dataset, fragments
        # A task asks for its inputs several times, and a tuple does not change.
        if isinstance(inputs, tuple):
            self._recent.append((inputs, found))
        return found

    def _replaced(self, inputs: Sequence[DataFile]) -> list[Any]:
        """Return the fragments of `inputs` in this worker's version, which a commit is from."""
        dataset, found = self._found(inputs)
        if dataset is self._dataset:
            return found
        return find_fragments(self._dataset, inputs, table=self.store.url)


def _opened_at(
    kind: type[OpenVersions], store: Store, version: int, added: pa.Schema | None
) -> OpenVersions:
    return kind(store=store, version=version, added=added)
