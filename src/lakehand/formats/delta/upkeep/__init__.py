"""Looking after the log: what of it may go, what is damaged, and how it is brought back."""

from __future__ import annotations
