"""Versions of a dataset, and what is in them."""

from __future__ import annotations
