"""Facts as frozen values: no I/O, no Spark, no words of one format."""

from __future__ import annotations
