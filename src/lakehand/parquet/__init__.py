"""Parquet files: footers, statistics, byte-level copies, reading and writing."""

from __future__ import annotations
