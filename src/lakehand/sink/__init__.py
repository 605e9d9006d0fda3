"""Exactly-once writes into tables."""

from __future__ import annotations

from lakehand.sink.context import SinkMetrics
from lakehand.sink.epochs import EpochState
from lakehand.sink.sink import DeltaSink

__all__ = ["DeltaSink", "EpochState", "SinkMetrics"]
