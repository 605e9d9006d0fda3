"""The service: maintains many tables in the background."""

from __future__ import annotations
