"""Exactly-once writes into tables.

The names are imported when first used: a table that is only looked at needs no writer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehand.sink.committer import DeltaCommitter, Descriptor
    from lakehand.sink.epochs import EpochState
    from lakehand.sink.options import SinkMetrics
    from lakehand.sink.sink import AsyncDeltaSink, DeltaSink

__all__ = [
    "AsyncDeltaSink",
    "DeltaCommitter",
    "DeltaSink",
    "Descriptor",
    "EpochState",
    "SinkMetrics",
]

_HOMES = {
    "AsyncDeltaSink": "async_sink",
    "DeltaCommitter": "committer",
    "DeltaSink": "sink",
    "Descriptor": "descriptors",
    "EpochState": "epochs",
    "SinkMetrics": "context",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lakehand.sink' has no attribute {name!r}")
    value = getattr(import_module(f"lakehand.sink.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
