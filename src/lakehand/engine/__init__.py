"""Where tasks run: on Spark, or in local processes."""

from __future__ import annotations
