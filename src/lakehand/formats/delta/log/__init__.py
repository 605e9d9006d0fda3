"""Reading the log: which files make up a version, and what they say."""

from __future__ import annotations
