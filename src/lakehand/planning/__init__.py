"""Which files to rewrite, and why: pure and vectorised."""

from __future__ import annotations
