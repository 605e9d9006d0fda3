"""Checks, and the way back to an earlier version."""

from __future__ import annotations
