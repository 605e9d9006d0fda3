"""Single rows: found by their keys, named by their places, hidden or taken out of their files."""

from __future__ import annotations
