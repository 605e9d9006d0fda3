"""Workers that get ready while it is still found out what they will do."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakehand.engine import choose_engine
from lakehand.engine.cores import usable_cores
from lakehand.engine.local_worker import start_workers_ahead
from lakehand.formats.worker import ByteCopyWorker
from lakehand.planning.method import DEFAULT_RULE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.settings import Settings

__all__ = ["start_movers_ahead"]


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
    might run on Spark, or where nothing is gained because there is one core for all.
    """
    large = _large_bytes(snapshot, paths)
    small = snapshot.total_bytes - large
    engine = choose_engine(settings, read_bytes=small, moved_bytes=large, spark=spark)
    count = round(large / settings.target_file_bytes)
    if engine != "local" or usable_cores() == 1 or not count:
        return
    worker = table.worker(snapshot)
    if isinstance(worker, ByteCopyWorker):
        copier = worker.copier()
        modules = ("lakehand.rewrite.group_task", type(copier).__module__)
        # Who cannot start one now cannot do so later either, and says so then.
        with suppress(OSError):
            start_workers_ahead(modules, count=min(count, usable_cores()))


def _large_bytes(snapshot: Snapshot, paths: Sequence[str]) -> int:
    """Return the bytes of those files whose row groups may be worth moving."""
    files = snapshot.files.select(["path", "bytes"])
    chosen = files.filter(pc.is_in(files["path"], value_set=pa.array(paths, pa.string())))
    large = pc.greater_equal(chosen["bytes"], DEFAULT_RULE.min_median_bytes)
    return int(pc.sum(chosen["bytes"].filter(large)).as_py() or 0)
