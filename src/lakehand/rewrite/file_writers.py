"""Writes sorted rows into files, the end of one while the next one begins.

The last row groups of a file keep few cores busy, and to make it durable keeps none.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from lakehand.model.batches import Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from lakehand.model.work import Group, StagedFile
    from lakehand.rewrite.task import RewriteTask

    Files = tuple[StagedFile, ...]
    Write = Callable[[int, Iterable[pa.RecordBatch]], Files]

#: Rows that belong together stay in one file up to this multiple of its target: files are split by
#: rows, and some rows take more bytes than others.
_SLACK = 2.0
#: One file that ends and one that begins; more of them would only take memory.
_FILES_AT_ONCE = 2
#: Batches that wait for the one who writes them.
_BATCHES_AHEAD = 2


def write_apart(
    task: RewriteTask,
    group: Group,
    rows: Iterable[tuple[int, pa.RecordBatch]],
    *,
    stem: str,
    is_cut: bool = True,
) -> Files:
    """Write rows into the files whose numbers come with them.

    If they are not cut yet, all of them have one number, and go into files by size.
    """
    spec = task.spec_of(group)
    if is_cut:
        spec = replace(spec, target_file_bytes=int(spec.target_file_bytes * _SLACK))

    def write(number: int, batches: Iterable[pa.RecordBatch]) -> Files:
        return task.worker.write(batches, spec, like=group.inputs, stem=f"{stem}-{number:04d}")

    numbered = ((number, (b for _, b in rows)) for number, rows in groupby(rows, itemgetter(0)))
    if spec.threads == 1:
        return tuple(file for number, batches in numbered for file in write(number, batches))
    return _write_beside(numbered, write)


def _write_beside(numbered: Iterable[tuple[int, Iterable[pa.RecordBatch]]], write: Write) -> Files:
    """Write each file in a separate thread, up to two at once."""
    files: list[StagedFile] = []
    ending: deque[Feed[pa.RecordBatch, Files]] = deque()
    with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="file") as pool:
        try:
            for number, batches in numbered:
                while len(ending) >= _FILES_AT_ONCE:
                    files += ending.popleft().result()
                feed = Feed(pool, partial(write, number), ahead=_BATCHES_AHEAD)
                ending.append(feed)
                for batch in batches:
                    feed.put(batch)
                feed.end()
            while ending:
                files += ending.popleft().result()
        except BaseException as error:
            # Open files must be discarded, and threads that wait for rows must end.
            for feed in ending:
                feed.fail(error)
            raise
    return tuple(files)
