"""Reports as people read them. Meaning never depends on colour."""

from __future__ import annotations
