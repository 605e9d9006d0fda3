"""The command."""

from __future__ import annotations
