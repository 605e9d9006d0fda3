"""Selects the files to rewrite, with a reason for every file: pure and vectorized."""

from __future__ import annotations
