"""lakehand keeps Delta Lake and Lance tables fast, small and safe.

`__all__` is the whole public API. Names are imported on first use, so that `import lakehand` is
quick and starts no JVM.
"""

from __future__ import annotations

import os
import sys


def _leave_out_current_directory() -> None:
    """Keep the directory in which `python -m lakehand` was started out of the import path.

    Python searches it first, and it may be a table's directory, with files written by anyone.
    """
    # While Python locates the module to run, sys.argv[0] is "-m".
    if sys.flags.safe_path or sys.argv[:1] != ["-m"]:
        return
    option = sys.orig_argv[-len(sys.argv)]
    module = option.partition("m")[2] if option.startswith("-") else option
    home = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120  pathlib may be planted
    is_own = module.split(".")[0] == __name__ and sys.path[0] != home
    # If the current directory no longer exists, Python has not added it.
    if is_own and os.path.isdir(".") and sys.path[0] == os.getcwd():  # noqa: PTH109, PTH112
        del sys.path[0]


# Before any other import.
_leave_out_current_directory()

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from lakehand._version import __version__ as __version__  # noqa: E402

if TYPE_CHECKING:
    from lakehand.assess.inspection import Inspection
    from lakehand.errors import (
        CommitConflictError,
        CommitUnknownError,
        LakehandError,
        NotATableError,
        ProofError,
        RefusedError,
        StorageError,
        TableError,
        ValidationError,
        is_retryable,
    )
    from lakehand.hot import HotTable
    from lakehand.model.quantities import format_bytes, format_duration
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe import Progress
    from lakehand.planning.plan import Plan
    from lakehand.service.client import ServiceClient
    from lakehand.service.many_tables import maintain_tables
    from lakehand.settings import SETTINGS, Settings
    from lakehand.sink import TableSink
    from lakehand.sql.spark_sql import register, run_sql
    from lakehand.storage import Store, open_store
    from lakehand.table import Table, check_health, create_table, open_table

__all__ = [
    "SETTINGS",
    "CommitConflictError",
    "CommitUnknownError",
    "HotTable",
    "Inspection",
    "LakehandError",
    "NotATableError",
    "Plan",
    "Progress",
    "ProofError",
    "RefusedError",
    "ServiceClient",
    "Settings",
    "Snapshot",
    "StorageError",
    "Store",
    "Table",
    "TableError",
    "TableSink",
    "ValidationError",
    "check_health",
    "create_table",
    "format_bytes",
    "format_duration",
    "is_retryable",
    "maintain_tables",
    "open_store",
    "open_table",
    "register",
    "run_sql",
]

_HOMES = {
    "HotTable": "hot",
    "Inspection": "assess.inspection",
    "Plan": "planning.plan",
    "Progress": "observe",
    "SETTINGS": "settings",
    "ServiceClient": "service.client",
    "Settings": "settings",
    "Snapshot": "model.snapshot",
    "Store": "storage",
    "Table": "table",
    "TableSink": "sink",
    "check_health": "table",
    "create_table": "table",
    "format_bytes": "model.quantities",
    "format_duration": "model.quantities",
    "maintain_tables": "service.many_tables",
    "open_store": "storage",
    "open_table": "table",
    "register": "sql.spark_sql",
    "run_sql": "sql.spark_sql",
}
#: Names of the first release that have moved. They work until the next release.
_MOVED = {
    "DeltaSink": ("lakehand", "TableSink"),
    "RetryPolicy": ("lakehand.storage", "RetryPolicy"),
    "with_retry": ("lakehand.storage", "with_retry"),
}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        module, new_name = _MOVED[name]
        import warnings

        message = f"lakehand.{name} is now {module}.{new_name}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(import_module(module), new_name)
    if name not in __all__:
        raise AttributeError(f"module 'lakehand' has no attribute {name!r}")
    value = getattr(import_module(f"lakehand.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
