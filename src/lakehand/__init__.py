"""lakehand keeps Delta Lake and Lance tables fast, small and safe."""

from __future__ import annotations

__version__ = "0.1.0"
