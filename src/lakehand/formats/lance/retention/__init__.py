"""What versions need, and what nobody does."""

from __future__ import annotations
