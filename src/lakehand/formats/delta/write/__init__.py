"""New data files of a table."""

from __future__ import annotations
