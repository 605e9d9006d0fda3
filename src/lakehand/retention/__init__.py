"""Everything that deletes: nothing goes unless it is certain that no promised version needs it."""

from __future__ import annotations
