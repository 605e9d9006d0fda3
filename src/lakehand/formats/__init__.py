"""The table formats, each behind the protocol in `base`."""

from __future__ import annotations
