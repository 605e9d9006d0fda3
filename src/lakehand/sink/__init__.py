"""Exactly-once writes into tables."""

from __future__ import annotations
