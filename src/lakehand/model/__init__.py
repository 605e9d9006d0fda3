"""Frozen values without I/O, Spark or terms of one format."""

from __future__ import annotations
