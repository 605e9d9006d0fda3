"""Rows that are new to a table, on their way into fragments that no version has yet."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from lakehand.formats.lance.connect import translated
from lakehand.formats.lance.files.deletions import FRAGMENT
from lakehand.formats.lance.files.durable import made_durable
from lakehand.formats.lance.files.fragments import DATA_DIRECTORY
from lakehand.formats.lance.files.writing import FragmentWriter
from lakehand.model.work import StagedFile

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from lakehand.storage import Store

__all__ = ["NewFragments"]


class NewFragments:
    """Files of about a size each, which rows come to piece by piece."""

    def __init__(self, store: Store, dataset: Any, *, target_file_bytes: int, stem: str) -> None:
        self._store = store
        self._schema: pa.Schema = dataset.schema
        self._target = target_file_bytes
        self._writer = FragmentWriter(store, dataset, stem=stem)
        #: Size of the rows in the file that is open, as they lie in memory.
        self._held_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            return
        # Lance can end a file and not give it up, so it is ended and then deleted.
        unfinished = self._writer.open_key
        with suppress(OSError, ValueError, RuntimeError):
            self._writer.close_file()
        if unfinished is not None:
            self._store.delete([unfinished])

    @property
    def keys(self) -> list[str]:
        """What may be in storage by now."""
        return self._writer.keys

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, which have the columns and types of the table in its order."""
        with translated(self._store, "to write fragments"):
            self._writer.write(batch.cast(self._schema))
            self._held_bytes += batch.nbytes
            if self._held_bytes >= self._target:
                self._writer.close_file()
                self._held_bytes = 0

    def close(self) -> tuple[StagedFile, ...]:
        """Write what is left and return the files."""
        with translated(self._store, "to write fragments"):
            self._writer.close_file()
        return made_durable(self._store, [_staged(found) for found in self._writer.fragments()])


def _staged(fragment: dict[str, Any]) -> StagedFile:
    (file,) = fragment["files"]
    return StagedFile(
        path=f"{DATA_DIRECTORY}/{file['path']}",
        bytes=file["file_size_bytes"],
        rows=fragment["physical_rows"],
        native={FRAGMENT: json.dumps(fragment)},
    )
