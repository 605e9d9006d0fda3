"""Data files: their rows read and written, their deletion vectors and statistics."""

from __future__ import annotations
