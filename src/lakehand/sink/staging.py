"""Rows of one epoch on their way into files that no version refers to yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import StorageError
from lakehand.observe.logs import get_logger, log_event
from lakehand.observe.steps import Step, reached

if TYPE_CHECKING:
    import pyarrow as pa

    from lakehand.formats.worker import NewFiles, WriteSpec
    from lakehand.model.work import StagedFile
    from lakehand.sink.target import Target

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
        self._staged: tuple[StagedFile, ...] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows that fit the table."""
        if not batch.num_rows:
            return
        if self._open is None:
            self._open = self._target.worker().open_files(self._spec, stem=self._stem)
        self._open.write(batch)
        reached(Step.SINK_WRITING)

    def finish(self) -> tuple[StagedFile, ...]:
        """Write what is left and return the files; calling it again returns the same."""
        if self._staged is None:
            self._staged = self._finish()
            reached(Step.SINK_STAGED)
        return self._staged

    def _finish(self) -> tuple[StagedFile, ...]:
        if self._open is None:
            return ()
        staged = self._open.close()
        self._leave()
        return staged

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

    def _leave(self, error: BaseException | None = None) -> None:
        if self._open is not None:
            files, self._open = self._open, None
            files.__exit__(type(error) if error else None, error, None)
            self._keys += files.keys
