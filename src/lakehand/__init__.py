"""lakehand keeps Delta Lake and Lance tables fast, small and safe.

The names below are the whole public surface. They are imported when first used, so that
`import lakehand` is quick and starts no JVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehand.assess.inspect import Inspection
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
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe.events import Progress
    from lakehand.planning.plan import Plan
    from lakehand.settings import SETTINGS, Settings
    from lakehand.sink import DeltaSink
    from lakehand.storage import Store, open_store
    from lakehand.storage.retry import RetryPolicy, with_retry
    from lakehand.table import Table, check_health, create_table, open_table

__version__ = "0.1.0"

__all__ = [
    "SETTINGS",
    "CommitConflictError",
    "CommitUnknownError",
    "DeltaSink",
    "Inspection",
    "LakehandError",
    "NotATableError",
    "Plan",
    "Progress",
    "ProofError",
    "RefusedError",
    "RetryPolicy",
    "Settings",
    "Snapshot",
    "StorageError",
    "Store",
    "Table",
    "TableError",
    "ValidationError",
    "check_health",
    "create_table",
    "is_retryable",
    "open_store",
    "open_table",
    "with_retry",
]

_HOMES = {
    "DeltaSink": "sink",
    "Inspection": "assess.inspect",
    "Plan": "planning.plan",
    "Progress": "observe.events",
    "RetryPolicy": "storage.retry",
    "SETTINGS": "settings",
    "Settings": "settings",
    "Snapshot": "model.snapshot",
    "Store": "storage",
    "Table": "table",
    "check_health": "table",
    "create_table": "table",
    "open_store": "storage",
    "open_table": "table",
    "with_retry": "storage.retry",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lakehand' has no attribute {name!r}")
    value = getattr(import_module(f"lakehand.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
