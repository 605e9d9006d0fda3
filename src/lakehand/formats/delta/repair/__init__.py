"""Damage: found, explained and repaired."""

from __future__ import annotations
