"""A worker, its job process and a scheduler as processes that die or stop at a named step.

`python -m support.service_processes <role> <plan>` runs one of them; a plan is JSON, so that a
worker can hand it to the process of its job.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lakehand.errors import LakehandError
from lakehand.observe.steps import Step, listen
from lakehand.service import job_process
from lakehand.service import scheduler as scheduling
from lakehand.service.config import parse_config
from lakehand.service.job_main import JobSpec
from lakehand.service.scheduler import Scheduler
from lakehand.service.store.budgets import BudgetStore
from lakehand.service.store.database import open_database
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import TableRegistry
from lakehand.service.store.worker_registry import WorkerRegistry
from lakehand.service.worker import JobWorker, WorkerOptions
from support.unmeasured import unmeasured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakehand.service.store.database import Database
    from lakehand.service.store.records import Job

Role = Literal["worker", "job", "scheduler"]
#: `machine`: a job process dies with its worker, as when the power fails, instead of a commit.
Way = Literal["kill", "stop", "machine"]
DAY, BUDGET = "2026-01-01", "all"
SETTINGS = {"min_files": 2, "automatic_min_files": 2, "quiet_period": "0s", "engine": "local"}
TICK_SECONDS = 0.2
#: Those that this process has open.
_databases: list[Database] = []


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a process is told: its store, its lake, and where it is to die or to stop."""

    store: str
    lake: str
    #: Written when the step is reached, with the id of the process.
    mark: str
    role: Role = "worker"
    step: Step | None = None
    way: Way = "kill"
    worker: str = "first"
    lease_seconds: float = 2.0
    slots: int = 1
    #: Whether jobs are told which runs are dead.
    knows_dead_runs: bool = True
    #: Retries at once; else after the delays of the product.
    is_prompt: bool = True
    #: Seconds between the looks at a table, instead of those of the product.
    look_seconds: float | None = None
    settings: dict[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    #: How often the tables are read; thresholds of tables whose rewrites do not pay are raised.
    importance: float = 1.0

    def to_text(self) -> str:
        return json.dumps(asdict(self))


class AtOnce(random.Random):
    """Makes every delay that is spread by chance short."""

    def random(self) -> float:
        return -0.49


class Parts:
    """The parts of a service on a store."""

    def __init__(self, database: Database, plan: Plan) -> None:
        chance = AtOnce() if plan.is_prompt else None
        self.database, self.plan = database, plan
        self.jobs = JobQueue(database, chance=chance)
        self.tables = TableRegistry(database)
        self.workers = WorkerRegistry(database)
        self.budgets = BudgetStore(database)

    def scheduler(self) -> Scheduler:
        document = {
            "service": {"lease": f"{self.plan.lease_seconds}s"},
            "source": [{"name": "lake", "include": [self.plan.lake], "every": "1s"}],
            "policy": {
                "default": {
                    "steps": ["compact"],
                    "check_after": {"commits": 10},
                    "importance": self.plan.importance,
                    **self.plan.settings,
                }
            },
        }
        return Scheduler(
            parse_config(document),
            self.database,
            jobs=self.jobs,
            tables=self.tables,
            workers=self.workers,
        )

    def worker(self) -> JobWorker:
        plan = self.plan
        made = JobWorker(
            self.jobs,
            self.tables,
            self.workers,
            spec_of=self.spec_of,
            options=WorkerOptions(
                id=plan.worker, slots=plan.slots, lease_seconds=plan.lease_seconds
            ),
        )
        if plan.is_prompt:
            made._chance = AtOnce()
        return made

    def spec_of(self, job: Job) -> JobSpec:
        reserving = {"scopes": [BUDGET], "day": DAY, "wanted": {"bytes": 100}}
        self.budgets.reserve(job.id, job.fence, **reserving, least_share=0.01)
        table = self.tables.get(job.table_id)
        runs = self.jobs.dead_runs(table.id) if self.plan.knows_dead_runs else ()
        own = {"automatic": False} if job.verb == "compact" else {}
        return JobSpec(
            url=table.url,
            verb=job.verb,
            options={**own, **job.options},
            settings=self.plan.settings,
            known_dead=tuple(runs),
            labels={"job": str(job.id)},
        )


def _listener(plan: Plan) -> Callable[[Step], None]:
    lock = threading.Lock()

    def at(step: Step) -> None:
        if plan.step is Step.JOB_WINDING_DOWN and step is Step.RUN_STARTED:
            _wait_for(Path(plan.mark))  # Else the job may have ended before it is asked.
        if step != plan.step or Path(plan.mark).exists():
            return
        # A process that is stopped in a transaction of SQLite keeps all others out of the file.
        with lock, contextlib.ExitStack() as idle:
            for database in _databases:
                idle.enter_context(database._turn)
            Path(plan.mark).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP if plan.way == "stop" else signal.SIGKILL)

    return at


def _wait_for(path: Path) -> None:
    for _ in range(400):
        if path.exists():
            return
        time.sleep(0.05)


def _run_worker(plan: Plan) -> None:
    command = (sys.executable, "-P", "-m", "support.service_processes", "job", plan.to_text())
    job_process.COMMAND = command
    _databases.append(open_database(plan.store))
    worker = Parts(_databases[0], plan).worker()
    signal.signal(signal.SIGTERM, lambda *_: worker.drain())
    worker.start()
    while not worker.join(0.2):
        pass


def _run_job(plan: Plan) -> None:
    from lakehand.rewrite import execute
    from lakehand.service import job_main

    def lose_power(*_: Any, **__: Any) -> None:
        Path(plan.mark).write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)

    if plan.way == "machine":
        execute.commit_results = lose_power
    sys.exit(job_main.main())


def _run_scheduler(plan: Plan) -> None:
    if plan.look_seconds is not None:
        for name in ("_LOOK_SOON", "_LOOK_STEP", "_LOOK_LATE"):
            setattr(scheduling, name, plan.look_seconds)
    scheduler = Parts(open_database(plan.store), plan).scheduler()
    while True:
        with contextlib.suppress(LakehandError):
            scheduler.tick()
        time.sleep(TICK_SECONDS)


_ROLES = {"worker": _run_worker, "job": _run_job, "scheduler": _run_scheduler}


def start(role: Role, plan: Plan) -> subprocess.Popen[bytes]:
    environment = {**unmeasured(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "support.service_processes", role, plan.to_text()]
    return subprocess.Popen(command, env=environment)


@contextmanager
def started(role: Role, plan: Plan) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process; kill it at the end of the block if it still runs."""
    process = start(role, plan)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def job_processes(mark: str) -> list[int]:
    """Return the job processes of a plan that still run; a zombie does not."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z" and "job" in command and any(mark in word for word in command):
            found.append(int(path.name))
    return found


def main() -> None:
    role, values = sys.argv[1], json.loads(sys.argv[2])
    plan = Plan(**values)
    plan = replace(plan, step=plan.step and Step(plan.step))
    if plan.role == role:
        listen(_listener(plan))
    _ROLES[role](plan)


if __name__ == "__main__":
    main()
