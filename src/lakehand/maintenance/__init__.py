"""What a table needs from time to time, run when it is due."""

from __future__ import annotations
