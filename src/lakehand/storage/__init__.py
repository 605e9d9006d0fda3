"""One small object-store class over obstore, and what keeps it honest."""

from __future__ import annotations
