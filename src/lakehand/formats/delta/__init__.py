"""Delta Lake: the log, its snapshots, commits and checkpoints."""

from __future__ import annotations
