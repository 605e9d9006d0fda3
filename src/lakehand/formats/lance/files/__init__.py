"""Fragments: read, rewritten, and read back before anything is committed."""

from __future__ import annotations
