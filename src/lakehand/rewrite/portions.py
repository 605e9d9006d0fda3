"""Files that are read one by one, in portions for tasks, and how far the tasks have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lakehand.engine import choose_engine, is_spark_asked_for
from lakehand.errors import CorruptFileError
from lakehand.observe import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakehand.engine import TaskOutcome
    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import DataFile
    from lakehand.observe import OnProgress
    from lakehand.settings import Settings

__all__ = ["FileProgress", "portions", "require_true_sizes"]

#: A task gets files up to either of these: enough to be worth its start, little to do again.
_MOST_FILES, _MOST_BYTES = 64, 256 * 2**20


#: Of so many files, the largest, storage is asked before their sizes start Spark.
_LOOKED_AT = 16


def require_true_sizes(
    table: FormatTable,
    snapshot: Snapshot,
    settings: Settings,
    *,
    read_bytes: int,
    moved_bytes: int = 0,
    spark: Any = None,
) -> None:
    """Raise CorruptFileError where Spark would be started only because a size is wrong."""
    sizes = {"read_bytes": read_bytes, "moved_bytes": moved_bytes}
    if is_spark_asked_for(settings, spark=spark):
        return
    if choose_engine(settings, **sizes, spark=spark) == "local":
        return
    count = min(_LOOKED_AT, snapshot.file_count)
    order = pc.select_k_unstable(snapshot.files, k=count, sort_keys=[("bytes", "descending")])
    for finding in table.worker(snapshot).check_files(snapshot.files.take(order)):
        if finding.name == "wrong_size":
            raise CorruptFileError(
                finding.message,
                table=table.store.url,
                path=finding.path,
                hint="`lakehand verify` lists every file whose size is wrong",
            )


def portions(
    files: Iterable[DataFile], *, most_bytes: int = _MOST_BYTES
) -> Iterator[list[DataFile]]:
    """Divide files among tasks, the largest first; a file is never divided."""
    portion: list[DataFile] = []
    size = 0
    for file in sorted(files, key=lambda file: file.bytes, reverse=True):
        if portion and (len(portion) == _MOST_FILES or size + file.bytes > most_bytes):
            yield portion
            portion, size = [], 0
        portion.append(file)
        size += file.bytes
    if portion:
        yield portion


class FileProgress:
    """Tells how many files are done; raising from the callback stops the tasks."""

    def __init__(
        self, files: Sequence[Sequence[DataFile]], on_progress: OnProgress | None, *, phase: str
    ) -> None:
        self._counts = [len(portion) for portion in files]
        self._bytes = [sum(file.bytes for file in portion) for portion in files]
        self._phase = phase
        self._tell = on_progress
        self._done = self._done_bytes = 0

    def count(self, outcome: TaskOutcome) -> None:
        self._done += self._counts[outcome.index]
        self._done_bytes += self._bytes[outcome.index]
        if self._tell is None:
            return
        progress = Progress(
            phase=self._phase,
            done=self._done,
            total=sum(self._counts),
            unit="files",
            done_bytes=self._done_bytes,
            total_bytes=sum(self._bytes),
        )
        self._tell(progress)
