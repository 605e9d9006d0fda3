"""Parquet as bytes: footers, faithful writing, typed bounds."""

from __future__ import annotations
