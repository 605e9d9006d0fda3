"""What is wrong with a table, in numbers."""

from __future__ import annotations
