"""Deletion vectors, and rows deleted by them."""

from __future__ import annotations
