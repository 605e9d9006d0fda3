"""Which files of a table may go, and which must stay."""

from __future__ import annotations
