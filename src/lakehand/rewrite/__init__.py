"""Tasks that turn files into better files."""

from __future__ import annotations
