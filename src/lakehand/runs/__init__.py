"""The ledger of a run: what it reserved, wrote and decided."""

from __future__ import annotations
