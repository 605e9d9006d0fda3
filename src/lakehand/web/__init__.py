"""The HTTP server of the service."""

from __future__ import annotations
