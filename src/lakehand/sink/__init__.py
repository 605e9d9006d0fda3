"""Exactly-once writes into tables.

The names are imported when first used: a table that is only looked at needs no writer.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehand.sink.committer import SinkCommitter
    from lakehand.sink.descriptor import Descriptor
    from lakehand.sink.epochs import EpochState
    from lakehand.sink.sink_options import SinkMetrics
    from lakehand.sink.table_sink import AsyncTableSink, TableSink

__all__ = [
    "AsyncTableSink",
    "Descriptor",
    "EpochState",
    "SinkCommitter",
    "SinkMetrics",
    "TableSink",
]

_HOMES = {
    "AsyncTableSink": "table_sink",
    "Descriptor": "descriptor",
    "EpochState": "epochs",
    "SinkCommitter": "committer",
    "SinkMetrics": "sink_options",
    "TableSink": "table_sink",
}
#: Names of the first release, which work until the next one.
_RENAMED = {
    "AsyncDeltaSink": "AsyncTableSink",
    "DeltaCommitter": "SinkCommitter",
    "DeltaSink": "TableSink",
}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        message = f"lakehand.sink.{name} is now lakehand.sink.{_RENAMED[name]}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return __getattr__(_RENAMED[name])
    if name not in __all__:
        raise AttributeError(f"module 'lakehand.sink' has no attribute {name!r}")
    value = getattr(import_module(f"lakehand.sink.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
