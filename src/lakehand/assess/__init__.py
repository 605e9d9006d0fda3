"""Inspects, verifies, repairs and advises on tables."""

from __future__ import annotations
