"""The process that forks Spark's Python workers, with all loaded that our tasks need.

Spark ends workers that had nothing to do for a minute, and new ones would load everything again,
which takes longer than many a task. It runs in sessions that lakehand starts on one machine.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from lakehand.engine.import_guard import leave_pandas_out

#: Names only, so that nothing here depends on what lies above.
_NEEDED = (
    "lakehand.engine.spark_exchange",
    "lakehand.rewrite.copy",
    "lakehand.rewrite.shuffle",
    "lakehand.formats.delta.worker",
)


def main() -> None:
    from pyspark.daemon import manager

    leave_pandas_out()
    for name in _NEEDED:
        # What fails here fails again in a task, which can say so.
        with suppress(ImportError):
            import_module(name)
    manager()


if __name__ == "__main__":
    main()
