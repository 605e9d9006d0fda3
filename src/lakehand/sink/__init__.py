"""Exactly-once writes into tables."""

from __future__ import annotations

from lakehand.sink.async_sink import AsyncDeltaSink
from lakehand.sink.committer import DeltaCommitter
from lakehand.sink.context import SinkMetrics
from lakehand.sink.descriptors import Descriptor
from lakehand.sink.epochs import EpochState
from lakehand.sink.sink import DeltaSink

__all__ = [
    "AsyncDeltaSink",
    "DeltaCommitter",
    "DeltaSink",
    "Descriptor",
    "EpochState",
    "SinkMetrics",
]
