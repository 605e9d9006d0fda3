"""Tables of a lake under a service, a model of their rows, and what must hold at the end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from sqlalchemy import select

import lakehand
from lakehand.service.store.database import open_database
from lakehand.service.store.database_schema import ATTEMPTS, EVENTS
from lakehand.service.store.table_registry import FoundTable
from support.job_stores import add_pool, request
from support.service_processes import BUDGET, DAY, Parts
from support.table_writers import is_by_lakehand, versions

if TYPE_CHECKING:
    from lakehand.service.store.database import Database

SCHEMA = pa.schema({"part": pa.int64(), "id": pa.int64()})


class Lake:
    """Tables, a model of the rows that were acknowledged, and a service on them."""

    #: The job stores of all, for a fixture that closes them.
    opened: ClassVar[list[Database]] = []

    def __init__(self, plan, clock=None):
        self.plan = plan
        self.database = open_database(plan.store, clock=clock)
        self.opened.append(self.database)
        self.parts = Parts(self.database, plan)
        add_pool(self.database)
        self.parts.budgets.allow(BUDGET, "bytes", DAY, 1_000_000)
        self.acknowledged = {}

    def create(self, name, *, parts=2, files=3):
        place = Path(self.plan.lake, name)
        lakehand.create_table(place, SCHEMA, partition_by=["part"], engine="local")
        self.acknowledged[name] = []
        for _ in range(files):
            self.append(name, parts)
        return f"file://{place}"

    def append(self, name, parts=2):
        known = self.acknowledged[name]
        rows = [(part, len(known) + part) for part in range(parts)]
        data = pa.Table.from_pylist(
            [dict(zip(("part", "id"), r, strict=True)) for r in rows], SCHEMA
        )
        write_deltalake(str(Path(self.plan.lake, name)), data, mode="append")
        known.extend(rows)

    @contextmanager
    def being_written(self):
        """Let delta-rs append to every table while the block runs."""
        is_over = threading.Event()

        def write():
            while not is_over.wait(0.3):
                for name in self.acknowledged:
                    self.append(name)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def enqueue(self, url, verb="compact"):
        table, _ = self.parts.tables.add(FoundTable(url=url, format="delta"))
        return self.parts.jobs.enqueue(request(table.id, verb)).job_id

    @contextmanager
    def another_worker(self, **changes):
        plan = replace(self.plan, worker="second", lease_seconds=20, **changes)
        worker = Parts(self.database, plan).worker()
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()
            assert worker.join(60)

    def wait_for_end(self, *job_ids):
        """Free the jobs of dead workers, as a scheduler does, until all jobs have ended."""
        until(
            lambda: self.parts.jobs.free_dead() is None or all(map(self.has_ended, job_ids)),
            describe=lambda: self.story_of(*job_ids),
        )

    def story_of(self, *job_ids):
        """Return what is known of jobs, for the message of a test that waits for them in vain."""
        jobs = [self.parts.jobs.get(job_id) for job_id in job_ids]
        events = self.rows_of(select(EVENTS).order_by(EVENTS.c.id))
        attempts = self.rows_of(select(ATTEMPTS))
        show_stacks_of_children()
        return "\n".join(map(str, [*jobs, *attempts, *events]))

    def has_ended(self, job_id):
        return self.parts.jobs.get(job_id).ended_at is not None

    def rows_of(self, query):
        with self.database.transaction() as connection:
            return connection.execute(query).all()

    def check_rows(self):
        for name, rows in self.acknowledged.items():
            place = str(Path(self.plan.lake, name))
            for found in (
                lakehand.open_table(place).to_arrow(),
                DeltaTable(place).to_pyarrow_table(),
            ):
                ids = zip(found["part"].to_pylist(), found["id"].to_pylist(), strict=True)
                assert sorted(ids) == sorted(rows)
            log = Path(place, "_delta_log")
            assert any(is_by_lakehand(log, version) for version in versions(log)), "not compacted"

    def check(self, *job_ids):
        """No row is lost or doubled, each job has one result, and nothing is left over."""
        self.check_rows()
        for job_id in job_ids:
            assert self.parts.jobs.get(job_id).state == "succeeded"
            ended = select(EVENTS.c.kind).where(EVENTS.c.job_id == job_id)
            assert [row.kind for row in self.rows_of(ended)].count("job.succeeded") == 1
        assert self.parts.jobs.listed(states=["running"]) == []
        assert self.rows_of(select(ATTEMPTS).where(ATTEMPTS.c.ended_at.is_(None))) == []
        assert [budget.reserved for budget in self.parts.budgets.of_day(DAY)] == [0]


def show_stacks_of_children(pid="self"):
    """Let every process that this one has started print where it is, and end."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            show_stacks_of_children(child)
            command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            print(child, command[:200], file=sys.stderr, flush=True)
            if "python" in command:
                os.kill(int(child), signal.SIGABRT)
                time.sleep(0.5)


def until(condition, seconds=60, describe=lambda: "it has not come to this in time"):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.05)
