"""Checkpoints of the log, as every engine reads them."""

from __future__ import annotations
