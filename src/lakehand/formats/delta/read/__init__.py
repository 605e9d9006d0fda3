"""The rows of data files, as readers see them."""

from __future__ import annotations
