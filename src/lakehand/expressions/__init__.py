"""SQL predicates and expressions: parsed with sqlglot, evaluated on statistics and rows."""

from __future__ import annotations
