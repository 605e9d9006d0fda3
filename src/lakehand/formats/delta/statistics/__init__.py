"""File statistics: computed, merged, read as bounds and checked."""

from __future__ import annotations
