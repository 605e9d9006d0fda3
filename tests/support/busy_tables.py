"""Tables that are written to at given minutes."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import lakehand
from lakehand.formats.delta.table import DeltaTable
from lakehand.maintenance.maintain import maintain
from lakehand.observe.clock import ManualClock
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.compactions import tasks_inline
from support.sinks import SCHEMA, batch_of

if TYPE_CHECKING:
    from pathlib import Path

    from lakehand.model.reports import OperationReport

START = datetime(2026, 1, 1, tzinfo=UTC)


class Busy:
    """A table that is written to at given minutes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table = lakehand.create_table(path, SCHEMA, checkpoint_interval=1000)
        self.date(0)

    def append(self, minute: float, rows: int = 1) -> None:
        first = int(minute * 100_000)
        self.table.append(batch_of(list(range(first, first + rows))))
        self.date(minute)

    def delete(self, minute: float, where: str) -> None:
        self.table.delete(where=where)
        self.date(minute)

    def date(self, minute: float) -> None:
        """Make the newest commit one of that minute."""
        at = (START + timedelta(minutes=minute)).timestamp()
        commit = max((self.path / "_delta_log").glob("*.json"))
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["modificationTime"] = int(at * 1000)
        commit.write_text("\n".join(map(json.dumps, actions)) + "\n")
        os.utime(commit, (at, at))

    def maintain(self, minute: float, **settings: Any) -> OperationReport:
        """Return what the rewriting step of `maintain` did at that minute."""
        clock = ManualClock(START + timedelta(minutes=minute))
        chosen = Settings({"engine": "local", **settings}, environment={})
        with tasks_inline():
            report = maintain(
                DeltaTable(open_store(self.path)), settings=chosen, skip=["vacuum"], clock=clock
            )
        return report.steps[0].report
