"""What a run leaves in the table's root while it works: ledger, heartbeat, fate, results.

A run is safe to kill at any point. Everything it may have written is named in its ledger before
the first byte, and one object per commit batch decides who may commit or delete it.
"""

from __future__ import annotations

from lakehand.runs.adopt import Adopted, LivingRun, earlier_than, living_runs
from lakehand.runs.ledger import Heartbeat, Run, list_runs
from lakehand.runs.ledger_records import Fate, Reservation, commit_results
from lakehand.runs.sweep import SweepReport, resume, sweep

__all__ = [
    "Adopted",
    "Fate",
    "Heartbeat",
    "LivingRun",
    "Reservation",
    "Run",
    "SweepReport",
    "commit_results",
    "earlier_than",
    "list_runs",
    "living_runs",
    "resume",
    "sweep",
]
