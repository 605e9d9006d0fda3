"""The Lance adapter: datasets of fragments, read and rewritten by `pylance`."""

from __future__ import annotations
