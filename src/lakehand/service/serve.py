"""`lakehand serve`: the roles of one process, its signals, and its end.

The scheduler role frees dead jobs, finds tables, looks at them and tells hooks of events, each in
its own thread, so that a slow store holds up none of the others. The worker role claims jobs and
runs them. The web role takes notifications.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import queue
import signal
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from lakehand.errors import JobStoreError, LakehandError, ValidationError
from lakehand.observe.clock import SystemClock
from lakehand.observe.emit import get_logger, log_event
from lakehand.service.hooks import HookDelivery
from lakehand.service.job_specs import JobSpecs
from lakehand.service.run_metrics import Increment
from lakehand.service.scheduler import LOOKS_PER_TICK, Scheduler, Tick
from lakehand.service.store.budgets import BudgetStore
from lakehand.service.store.database import open_database
from lakehand.service.store.events import Conditions, EventLog, record_event
from lakehand.service.store.job_claims import configure_pools
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.service_metrics import MetricTotals, count
from lakehand.service.store.table_registry import TableRegistry
from lakehand.service.store.worker_registry import Leadership, WorkerRegistry
from lakehand.service.table_reader import BackgroundReader
from lakehand.service.worker import JobWorker, WorkerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakehand.service.config import ServiceConfig
    from lakehand.service.store.database import Database

Role = Literal["web", "scheduler", "worker"]
ROLES: tuple[Role, ...] = get_args(Role)

#: Seconds between two rounds of each loop of the scheduler.
_FREE_EVERY, _DISCOVER_EVERY, _LOOK_EVERY, _PRUNE_EVERY = 5.0, 5.0, 1.0, 3600.0
_HOOKS_EVERY, _CONDITIONS_EVERY = 1.0, 5.0
#: How long a scheduler leads without a word: another one takes over after that.
_LEADER_SECONDS = 15.0
#: How long the end waits for threads that talk to a store.
_THREADS_END_SECONDS = 5.0
_logger = get_logger(__name__)


class Server(Protocol):
    """The HTTP server, which is above the service."""

    def start(self) -> str: ...

    def stop(self) -> bool: ...

    def reconfigure(self, config: ServiceConfig) -> None: ...


class MakeServer(Protocol):
    """Makes the HTTP server of a service."""

    def __call__(
        self, config: ServiceConfig, database: Database, *, jobs: JobQueue, tables: TableRegistry
    ) -> Server: ...


class Service:
    """One process of the service."""

    def __init__(
        self,
        config: ServiceConfig,
        *,
        roles: Sequence[Role] = ROLES,
        web: MakeServer | None = None,
    ) -> None:
        """`web` makes the HTTP server; without one the process has no web role."""
        self.config = config
        self.roles = tuple(roles)
        self._clock = SystemClock()
        self._database = open_database(config.service.store)
        self.jobs = JobQueue(self._database)
        self.tables = TableRegistry(self._database)
        self._events = EventLog(self._database)
        self._conditions = Conditions(self._database)
        self._totals = MetricTotals(self._database)
        workers = WorkerRegistry(self._database)
        name = f"{platform.node()}-{os.getpid()}"
        self._leadership = Leadership(self._database, "scheduler", name)
        self._reader = BackgroundReader(self._database, self.tables)
        self._scheduler = Scheduler(
            config,
            self._database,
            jobs=self.jobs,
            tables=self.tables,
            workers=workers,
            reader=self._reader,
        )
        self._specs = JobSpecs(config, self.jobs, self.tables, BudgetStore(self._database))
        options = WorkerOptions(
            slots=config.service.max_concurrent_jobs,
            spark_sessions=config.service.max_spark_sessions,
            lease_seconds=config.service.lease.total_seconds(),
            engines=available_engines(),
            job_timeout_seconds=config.service.job_timeout.total_seconds(),
            wind_down_seconds=config.service.drain_timeout.total_seconds(),
        )
        self.worker = JobWorker(
            self.jobs, self.tables, workers, spec_of=self._specs.of, options=options
        )
        self._hooks = HookDelivery(config.hooks, self._database)
        self._web: Server | None = None
        if web is not None and "web" in self.roles:
            self._web = web(config, self._database, jobs=self.jobs, tables=self.tables)
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start what the roles need."""
        configure_pools(self._database, self.config.pools)
        if self._web is not None:
            self._web.start()
        if "scheduler" in self.roles:
            self._hooks.subscribe()
            self._loop("hooks", _HOOKS_EVERY, self._tell_hooks)
            self._loop("free", _FREE_EVERY, self._free)
            self._loop("discover", _DISCOVER_EVERY, self._discover)
            self._loop("look", _LOOK_EVERY, self._look)
            self._loop("prune", _PRUNE_EVERY, self._prune)
            self._loop("conditions", _CONDITIONS_EVERY, self._check_conditions)
        if "worker" in self.roles:
            self.worker.start()
        log_event(_logger, logging.INFO, "service_started", "started: %s", ", ".join(self.roles))

    def reload(self, config: ServiceConfig) -> None:
        """Go on with another configuration. The store and the number of slots stay."""
        fixed = ("store", "max_concurrent_jobs", "max_spark_sessions", "lease", "job_timeout")
        for name in fixed:
            if getattr(config.service, name) != getattr(self.config.service, name):
                message = "[service] %s has changed: it holds after a restart"
                log_event(_logger, logging.WARNING, "restart_needed", message, name)
        self._scheduler.apply(config)
        self._specs.config = config
        if self._web is not None:
            self._web.reconfigure(config)
        if "scheduler" in self.roles:
            hooks = HookDelivery(config.hooks, self._database)
            hooks.subscribe()
            self._hooks = hooks
        self.config = config
        self._totals.add(Increment("config_reloads", {"outcome": "accepted"}))
        log_event(_logger, logging.INFO, "config_reloaded", "the configuration was read again")

    def note_refused(self, error: LakehandError) -> None:
        """Note that a configuration was not taken: in the log, as an event and in a metric."""
        message = "the configuration was not read again, the old one holds: %s (%s)"
        values = (error.message, error.hint or "no hint")
        log_event(_logger, logging.ERROR, "config_refused", message, *values)
        with self._database.transaction() as connection:
            now = self._database.now()
            count(connection, Increment("config_reloads", {"outcome": "refused"}))
            record_event(connection, now, "service.config_refused", code=error.code)

    def drain(self) -> None:
        """Start no further job, and let running ones commit what is proved."""
        self._ending.set()
        self.worker.drain()

    def stop(self) -> None:
        """End running jobs at once; they are queued again."""
        self._ending.set()
        self.worker.stop()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all has ended; say whether it has."""
        if "worker" in self.roles and not self.worker.join(timeout):
            return False
        for thread in self._threads:
            thread.join(_THREADS_END_SECONDS)
        if self._web is not None:
            self._web.stop()
        return True

    def close(self) -> None:
        """Let another scheduler lead at once, and close the store."""
        self._reader.close()
        if "scheduler" in self.roles:
            try:
                self._leadership.release()
            except JobStoreError as error:
                log_event(_logger, logging.WARNING, "store_failed", "%s", error.message)
        self._database.close()

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end, by a signal or through the store."""
        return self._ending.is_set() or ("worker" in self.roles and self.worker.is_draining)

    # -- the loops of the scheduler ----------------------------------------------------------------

    def _loop(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        thread = threading.Thread(
            target=self._repeat, args=(name, seconds, work), name=name, daemon=True
        )
        thread.start()
        self._threads.append(thread)

    def _repeat(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        while not self._ending.is_set():
            try:
                work()
            except LakehandError as error:
                log_event(_logger, logging.WARNING, f"{name}_failed", "%s", error.message)
            except Exception:
                # An unexpected error of one table or store must not stop the others.
                _logger.exception("%s failed unexpectedly", name)
            self._ending.wait(seconds)

    def _free(self) -> None:
        self._scheduler.tend_queue(Tick())

    def _discover(self) -> None:
        if self._leads():
            done = Tick()
            self._scheduler.discover(done)
            if done.found or done.gone:
                message = "%d tables found, %d gone"
                log_event(_logger, logging.INFO, "discovered", message, done.found, done.gone)

    def _look(self) -> None:
        # As long as many tables wait for a look, without a pause.
        while self._leads() and not self._ending.is_set():
            done = Tick()
            self._scheduler.look(done)
            if done.looked_at < LOOKS_PER_TICK:
                return

    def _tell_hooks(self) -> None:
        if self._leads():
            self._hooks.deliver_due()

    def _prune(self) -> None:
        if self._leads():
            kept = self.config.service.keep_history.total_seconds()
            self._events.prune(self._database.time() - kept)

    def _check_conditions(self) -> None:
        if self._leads():
            now = datetime.fromtimestamp(self._database.time(), self.config.service.time_zone)
            below = self.config.metrics.unhealthy_below
            self._conditions.check(unhealthy_below=below, day=now.date().isoformat())
            self._totals.merge()

    def _leads(self) -> bool:
        return self._leadership.hold(_LEADER_SECONDS)


def available_engines() -> tuple[str, ...]:
    """Return where a worker on this machine can run tasks."""
    from lakehand.engine.runner_contract import require_pyspark
    from lakehand.engine.session import find_java

    try:
        require_pyspark()
        find_java()
    except LakehandError:
        return ("local",)
    return ("local", "spark")


def parse_roles(given: str) -> tuple[Role, ...]:
    """Return the roles of a comma-separated list."""
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in ROLES:
            message = f"{name!r} is not a role; the roles are {', '.join(ROLES)}"
            raise ValidationError(message, field="roles", value=given)
    if not names:
        raise ValidationError("no role is named", field="roles", value=given)
    return tuple(role for role in ROLES if role in names)


def run_service(service: Service, load: Callable[[], ServiceConfig] | None = None) -> int:
    """Run until a signal ends it; return the exit code.

    SIGTERM and SIGINT drain within `drain_timeout`, a second one stops at once. SIGHUP reads the
    configuration again; one that is wrong changes nothing.
    """
    signals = _Signals()
    with signals:
        service.start()
        while not service.is_ending and not signals.ends:
            signals.wait(1.0)
            if signals.take_reload() and load is not None:
                _reload(service, load)
        return _end(service, signals)


def _reload(service: Service, load: Callable[[], ServiceConfig]) -> None:
    try:
        service.reload(load())
    except LakehandError as error:
        with contextlib.suppress(JobStoreError):  # The log has it.
            service.note_refused(error)


def _end(service: Service, signals: _Signals) -> int:
    timeout = service.config.service.drain_timeout
    log_event(_logger, logging.INFO, "draining", "draining: running jobs commit what is proved")
    service.drain()
    deadline = SystemClock().monotonic() + timeout.total_seconds()
    while not service.join(0.1):
        signals.wait(0.1)
        if signals.ends > 1 or SystemClock().monotonic() >= deadline:
            log_event(_logger, logging.WARNING, "stopping", "stopping: jobs are queued again")
            service.stop()
            service.join(30.0)
            break
    service.close()
    log_event(_logger, logging.INFO, "service_ended", "ended")
    return 0


class _Signals:
    """The signals of the process, while the service runs."""

    def __init__(self) -> None:
        #: How often the process was told to end.
        self.ends = 0
        self._wants_reload = False
        # An event cannot be set by a handler that interrupts the thread which waits for it.
        self._arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._before[number] = signal.signal(number, lambda got, _: self._arrived.put(got))

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, seconds: float) -> None:
        """Wait for a signal, but not for longer than this."""
        try:
            number = self._arrived.get(timeout=seconds)
        except queue.Empty:
            return
        if number == signal.SIGHUP:
            self._wants_reload = True
        else:
            self.ends += 1

    def take_reload(self) -> bool:
        """Say whether the configuration is to be read again, once for each time."""
        wanted, self._wants_reload = self._wants_reload, False
        return wanted
