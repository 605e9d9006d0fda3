"""Sorts rows along a space-filling curve, in one task or in many."""

from __future__ import annotations
