"""Rows sorted along a curve, in one task or by many."""

from __future__ import annotations
