"""Local workers that get ready while it is still found out what they will do.

It imports little by itself: a command starts its first worker before it loads Arrow.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lakehand.engine import choose_engine, is_spark_asked_for
from lakehand.engine.local_worker import start_workers_ahead
from lakehand.engine.runner_contract import usable_cores
from lakehand.formats.worker import ByteCopyWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.settings import Settings


#: What is rewritten in the time in which a worker process starts and loads its modules. Less than
#: this is rewritten by the calling process, unless another engine is set than auto.
INLINE_REWRITE_BYTES = 16 * 2**20
#: A directory with more files than this is not listed to find out how large the table is.
_LISTED_FILES = 1000


def start_rewriter_ahead(settings: Settings, table: str) -> None:
    """Start one local worker for rewriting tasks, before their table is opened.

    None where Spark is asked for, and where the directory of the table shows that it is small.
    """
    if is_spark_asked_for(settings):
        return
    if settings.engine == "auto" and _is_small_directory(table):
        return
    _start(["lakehand.rewrite.task"], count=1)


def _is_small_directory(table: str) -> bool:
    """Say whether a local directory has so few bytes that no worker is needed; a guess."""
    size = 0
    try:
        with os.scandir(table) as entries:
            for number, entry in enumerate(entries):
                is_data = entry.is_dir() and not entry.name.startswith("_")
                if is_data or number >= _LISTED_FILES:
                    return False
                size += entry.stat().st_size
    except OSError:
        return False
    return size <= INLINE_REWRITE_BYTES


def start_movers_ahead(
    table: FormatTable,
    snapshot: Snapshot,
    settings: Settings,
    paths: Sequence[str],
    *,
    spark: Any = None,
) -> None:
    """Start local workers that move row groups while the footers of `paths` are read.

    As many as the large ones among these files may become new ones, and none where their tasks
    might run on Spark.
    """
    large = _large_bytes(snapshot, paths)
    small = snapshot.total_bytes - large
    engine = choose_engine(settings, read_bytes=small, moved_bytes=large, spark=spark)
    count = round(large / settings.target_file_bytes)
    if engine != "local" or not count:
        return
    worker = table.worker(snapshot)
    if isinstance(worker, ByteCopyWorker):
        copier = worker.copier()
        _start(["lakehand.rewrite.copy", type(copier).__module__], count=count)


def _start(modules: Sequence[str], *, count: int) -> None:
    """Start workers, up to one per core; none where they would share the only core."""
    cores = usable_cores()
    if cores > 1:
        # A worker that cannot start now cannot do so later either, and says so then.
        with suppress(OSError):
            start_workers_ahead(modules, count=min(count, cores))


def _large_bytes(snapshot: Snapshot, paths: Sequence[str]) -> int:
    """Return the bytes of those files whose row groups may be worth moving."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from lakehand.planning.drafts import DEFAULT_RULE

    files = snapshot.files.select(["path", "bytes"])
    chosen = files.filter(pc.is_in(files["path"], value_set=pa.array(paths, pa.string())))
    large = pc.greater_equal(chosen["bytes"], DEFAULT_RULE.min_median_bytes)
    return int(pc.sum(chosen["bytes"].filter(large)).as_py() or 0)
