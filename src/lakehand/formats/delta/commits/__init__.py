"""Writing versions: a change judged, drafted, published, or known not to be."""

from __future__ import annotations
