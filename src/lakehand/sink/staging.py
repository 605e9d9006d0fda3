"""Rows of one epoch on their way into files that no version refers to yet."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from lakehand.errors import StorageError
from lakehand.model.head import Evolution
from lakehand.observe.logs import get_logger, log_event
from lakehand.observe.steps import Step, reached

if TYPE_CHECKING:
    import pyarrow as pa

    from lakehand.formats.worker import NewFiles, WriteSpec
    from lakehand.model.work import StagedFile
    from lakehand.sink.target import Layout, Target

__all__ = ["Staging"]

_logger = get_logger(__name__)
_WARNING = 30


class Staging:
    """Files of one epoch. They are opened with its first rows."""

    def __init__(self, target: Target, spec: WriteSpec, *, stem: str) -> None:
        self._target = target
        self._spec = spec
        self._stem = stem
        self._open: NewFiles | None = None
        self._keys: list[str] = []
        #: What the newest files are written for, and files of earlier layouts.
        self._layout: Layout | None = None
        self._written: list[StagedFile] = []
        self._opened = 0
        self._staged: tuple[StagedFile, ...] | None = None

    @property
    def table_id(self) -> str | None:
        """The table that the files are written for."""
        head = self._target.head if self._layout is None else self._layout.head
        return head.table_id

    @property
    def holds_changes(self) -> bool:
        """Whether there is anything to commit although there are no files."""
        return False

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows that fit the table, or fitted it when they were taken."""
        if not batch.num_rows:
            return
        layout, rows = self._target.place(batch)
        if self._layout is not None and layout.head.rules != self._layout.head.rules:
            self._close()
        if self._open is None:
            self._layout = layout
            worker = self._target.handle.worker(layout.head)
            self._open = worker.open_files(self._spec, stem=self._next_stem())
        self._open.write(rows)
        reached(Step.SINK_WRITING)

    def _next_stem(self) -> str:
        """Return how the next files are named: a table that changes on the way has new ones."""
        self._opened += 1
        return self._stem if self._opened == 1 else f"{self._stem}-{self._opened}"

    def finish(self) -> tuple[StagedFile, ...]:
        """Write what is left and return the files; calling it again returns the same."""
        if self._staged is None:
            self._staged = self._finish()
            reached(Step.SINK_STAGED)
        return self._staged

    def _finish(self) -> tuple[StagedFile, ...]:
        self._close()
        return tuple(self._written)

    def _close(self) -> None:
        if self._open is not None:
            self._written += self._open.close()
            self._leave()

    def evolution(self) -> Evolution | None:
        """Return what must be committed with the files so that the table fits them.

        None if it cannot: they were written for another table than it is now, see `write_again`.
        """
        if self._layout is None:
            return Evolution(head=self._target.head)
        return self._target.evolution(self._layout)

    def write_again(self) -> tuple[StagedFile, ...]:
        """Write the rows of all files into new ones, for the table as it is now.

        Only for files that are proved to be in no version: they are deleted. If the rows do not fit
        any more, the error says how, and the files stay.
        """
        if self._layout is None or self._staged is None:
            return ()
        again = Staging(self._target, self._spec, stem=f"{self._stem}-{uuid.uuid4().hex[:8]}")
        try:
            worker = self._target.handle.worker(self._layout.head)
            for batch in worker.read_staged(self._staged):
                again.write(self._target.fit(batch))
            files = again.finish()
        except BaseException:
            again.discard()
            raise
        self.discard()
        self._keys, self._layout, self._staged = again._keys, again._layout, files
        return files

    def discard(self) -> None:
        """Delete all files. Only for those that were never handed to a commit.

        A store that fails here changes nothing: no version refers to the files, and vacuum finds
        them.
        """
        self._leave(StorageError("given up"))
        try:
            failures = self._target.store.delete(self._keys)
            error = failures[0].error if failures else None
        except StorageError as failure:
            error = failure
        if error is not None:
            message = "Files of an epoch that was given up are left to vacuum: %s"
            log_event(_logger, _WARNING, "staged_files_left", message, error.message)

    def let_go(self) -> None:
        """Keep the files, which a version may name, and nothing else of them."""

    def _leave(self, error: BaseException | None = None) -> None:
        if self._open is not None:
            files, self._open = self._open, None
            files.__exit__(type(error) if error else None, error, None)
            self._keys += files.keys
