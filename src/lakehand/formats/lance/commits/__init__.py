"""Changes that become versions."""

from __future__ import annotations
