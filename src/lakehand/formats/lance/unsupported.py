"""What is asked of a format where tasks run, and lakehand does not do to Lance.

Nobody comes here who asked the table first: see `LanceTable.capabilities`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from lakehand.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakehand.errors import LakehandError
    from lakehand.formats.rows import RowChange
    from lakehand.formats.worker import FormatCopier, NewFiles, TaskLimits, WriteSpec
    from lakehand.model.work import DataFile, Refreshed, StagedFile
    from lakehand.storage import Store

__all__ = ["Unsupported"]


class Unsupported:
    """The part of a worker that refuses, each time with the same kind of error."""

    __slots__ = ()

    store: Store

    @property
    def feeds_changes(self) -> bool:
        """Whether readers of changes must be told which rows went when a file is written anew."""
        return False

    def change_directory(self) -> str:
        self._refuse("write_changes")

    def write_changes(
        self,
        changed: DataFile,  # noqa: ARG002
        spec: WriteSpec,  # noqa: ARG002
        *,
        stem: str,  # noqa: ARG002
        kind: RowChange = "gone",  # noqa: ARG002
    ) -> tuple[StagedFile, ...]:
        self._refuse("write_changes")

    def open_changes(self, spec: WriteSpec, *, stem: str, kind: RowChange) -> NewFiles:  # noqa: ARG002
        self._refuse("write_changes")

    def refresh(
        self,
        files: Sequence[DataFile],  # noqa: ARG002
        *,
        accept_changes: bool = False,  # noqa: ARG002
    ) -> Iterator[Refreshed | LakehandError]:
        self._refuse("statistics")

    def rehearse(
        self,
        inputs: Sequence[DataFile],  # noqa: ARG002
        spec: WriteSpec,  # noqa: ARG002
        *,
        limits: TaskLimits,  # noqa: ARG002
    ) -> int:
        """Refuse: Lance writes new fragments nowhere but into the table."""
        self._refuse("rehearse")

    def copier(self, spec: WriteSpec | None = None) -> FormatCopier:  # noqa: ARG002
        self._refuse("copy")

    def codec_of(self, inputs: Sequence[DataFile]) -> str | None:  # noqa: ARG002
        """Lance chooses encodings by itself."""
        return None

    def _refuse(self, operation: str, why: str = "lakehand does not do this to Lance") -> NoReturn:
        message = f"{operation} is not for {self.store.url}: {why}"
        raise RefusedError(message, table=self.store.url, operation=operation)
