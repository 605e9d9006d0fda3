"""Versions of a dataset that a task has opened, and the fragments that it asked for last."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import ObjectNotFoundError, VersionNotFoundError
from lakehand.formats.lance.connect import open_dataset
from lakehand.formats.lance.files.evolved import evolved_dataset
from lakehand.formats.lance.files.fragments import (
    find_fragments,
    has_fragments,
    known_fragments,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakehand.model.head import TableHead
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import DataFile
    from lakehand.storage import Store

__all__ = ["OpenVersions"]

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

        Files that came since are in the newest one.
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
