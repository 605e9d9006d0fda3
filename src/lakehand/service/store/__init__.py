"""The job store: tables, jobs, workers and budgets, in SQLite or PostgreSQL.

What it holds is a plan of work. That no row is lost is guaranteed by each run's ledger in the table
itself, so the store may lose its last seconds, or be restored from a backup, without harm.
"""

from __future__ import annotations
