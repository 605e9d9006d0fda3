"""The process of a job: memory, a crash and a kill stay inside of it.

It reads documents from its standard input, one per line: a job, and wishes about it while it runs.
It answers on its standard output: the runs that the job began, its progress, and at last its report
or its error. Secrets come this way only, and are in no argument and no variable.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import resource
import signal
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lakehand.errors import CancelledError, LakehandError, describe_error
from lakehand.observe.steps import Step, reached
from lakehand.runs.control import RunControl, controlled
from lakehand.service.job_states import LANE_OF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakehand.engine.runner_contract import CancelToken
    from lakehand.observe import Progress
    from lakehand.settings import Settings
    from lakehand.table import Table

#: Progress that comes faster than this is not passed on.
_PROGRESS_SECONDS = 0.5
#: How long a process without its worker may wind its job down, and then take to cancel it.
_ORPHAN_SECONDS = 60.0
#: Requests of a job apart from data files: listing and reading the log, the ledger, the commit.
_REQUESTS_OF_A_JOB = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    """What a process is told of a job."""

    url: str
    verb: str
    #: Arguments of the verb.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Settings of the table, above its properties; those of its policy are below them.
    settings: Mapping[str, Any] = field(default_factory=dict)
    policy_settings: Mapping[str, Any] = field(default_factory=dict)
    #: What a verb is held for: another policy lifts the hold.
    policy_digest: str = ""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Runs of earlier attempts at the table, which have ended.
    known_dead: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Seconds after which files may be rewritten that were too new for this job.
    check_again_after: float = 300.0
    #: Whether it is a slice: what is left above `max_bytes_per_run` is queued again.
    is_slice: bool = False
    #: Seconds until the next day of a budget that gave it less than a slice, and what it gave.
    short_for: float | None = None
    granted_bytes: int | None = None
    #: Bytes that it reads per second, and writes to data files, at most; None: no limit.
    rate: float | None = None
    #: Niceness and I/O priority of its process.
    nice: int = 0
    ionice: str | None = None
    #: Prices, for what it has spent.
    costs: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_job(spec: JobSpec, control: RunControl, on_progress: Callable[[Progress], None]) -> Any:
    """Run the verb of a job on its table and return its report."""
    from lakehand.settings import Settings, parse_settings
    from lakehand.table import open_with

    policy = parse_settings(spec.policy_settings, "policy")
    settings = Settings(spec.settings, policy=policy)
    options = dict(spec.storage_options) or None
    table = open_with(settings, spec.url, storage_options=options, spark=_spark_session(settings))
    with controlled(control), _limited(spec.rate):
        return _call(table, spec, on_progress)


@contextlib.contextmanager
def _limited(rate: float | None) -> Iterator[None]:
    """Hold the rate of a job within its groups, too: its processes share a bucket of bytes."""
    if rate is None:
        yield
        return
    from lakehand.storage.pacing import Pace, paced

    with (
        tempfile.NamedTemporaryFile(prefix="lakehand-rate-") as bucket,
        paced(Pace(bytes_per_second=rate, path=bucket.name)),
    ):
        yield


@functools.cache
def _start_session(master: str | None, remote: str | None) -> Any:
    from lakehand.engine.session import open_session
    from lakehand.settings import Settings

    session, _ = open_session(Settings({"master": master, "remote": remote}))
    return session


def _spark_session(settings: Settings) -> Any:
    """Return the session of this process, which the jobs of a Spark pool share."""
    if settings.engine != "spark":
        return None
    return _start_session(settings.master, settings.remote)


def _call(table: Table, spec: JobSpec, on_progress: Callable[[Progress], None]) -> Any:
    options: dict[str, Any] = dict(spec.options)
    if spec.verb not in {"checkpoint", "clean_logs", "health"}:
        options["on_progress"] = on_progress
    if spec.verb in {"compact", "cluster"}:
        options.setdefault("automatic", True)
    return getattr(table, spec.verb)(**options)


class Throttle:
    """Keeps the bytes that a job reads below a rate, on average since it began.

    What it writes is limited while it writes, by `lakehand.storage.pacing`. That is not enough for
    rows that are read and dropped, nor where other machines do the work.
    """

    def __init__(self, rate: float, began: float | None = None) -> None:
        self._rate = rate
        self._began = time.monotonic() if began is None else began
        self._last = 0
        self._before = 0

    def seconds_ahead(self, done_bytes: int, now: float) -> float:
        """Return how long to wait until that many bytes are allowed.

        >>> Throttle(100.0, began=0.0).seconds_ahead(300, now=1.0)
        2.0
        """
        if done_bytes < self._last:  # Another step of the job counts from the beginning.
            self._before += self._last
        self._last = done_bytes
        return max(0.0, (self._before + done_bytes) / self._rate - (now - self._began))


class _Job:
    """One job under way, and what its parent may wish of it."""

    def __init__(self, spec: JobSpec, answer: Callable[[Mapping[str, Any]], None]) -> None:
        self._spec = spec
        self._answer = answer
        self._told_at = 0.0
        self._throttle = None if spec.rate is None else Throttle(spec.rate)
        self.control = RunControl(
            known_dead=frozenset(spec.known_dead),
            labels=spec.labels,
            on_start=lambda run_id: answer({"run": run_id}),
        )

    def run(self) -> dict[str, Any]:
        """Run the job; return its end: a report, or an error."""
        began = _core_seconds()
        try:
            report = run_job(self._spec, self.control, self._progress)
        except BaseException as error:  # noqa: BLE001  a panic of a library is no Exception
            end: dict[str, Any] = {"error": describe_error(error)}
            if not isinstance(error, LakehandError):
                end["error"]["code"] = "JOB_CRASHED"
        else:
            end = {"report": report.to_json()}
        work = work_done(end.get("report", {}), self._spec.verb)
        end["spent"] = {"core_seconds": _core_seconds() - began, **work}
        return end

    def _progress(self, progress: Progress) -> None:
        if self.control.cancel.is_cancelled:
            raise CancelledError("cancelled on request")
        now = time.monotonic()
        if now - self._told_at >= _PROGRESS_SECONDS:
            self._told_at = now
            self._answer({"progress": asdict(progress)})
        if self._throttle is not None and progress.done_bytes is not None:
            self._pause(self._throttle.seconds_ahead(progress.done_bytes, time.monotonic()))

    def _pause(self, seconds: float) -> None:
        """Start no further group for some time, unless the job is to end."""
        until = time.monotonic() + seconds
        cancel = self.control.cancel
        while time.monotonic() < until:
            if cancel.is_cancelled or cancel.is_winding_down:
                return
            time.sleep(min(0.2, max(0.0, until - time.monotonic())))


def work_done(report: Mapping[str, Any], verb: str) -> dict[str, float]:
    """Return bytes rewritten and written by an operation, and about how many requests it took.

    Without a report, or where a verb does not count them, bytes are missing: what was reserved
    counts.

    >>> done = {"bytes_removed": 9, "bytes_before": 20, "bytes_after": 19, "files_removed": 3}
    >>> work_done(done, "compact")
    {'bytes': 9.0, 'bytes_written': 8.0, 'requests': 16.0}
    """
    if not report:
        return {}
    parts = [report, *(step.get("report") or {} for step in report.get("steps") or ())]
    rewritten = [part.get("bytes_removed") for part in parts]
    is_unknown = report.get("outcome") == "committed" and not any(rewritten)
    if is_unknown and LANE_OF[verb] == "rewrite" and verb != "maintain":
        return {}
    total = sum(part or 0 for part in rewritten)
    grown = sum(
        part["bytes_after"] - part["bytes_before"] for part in parts if part.get("bytes_removed")
    )
    files = sum(2 * part.get("files_removed", 0) + part.get("files_added", 0) for part in parts)
    return {
        "bytes": float(total),
        "bytes_written": float(max(0, total + grown)),
        "requests": float(_REQUESTS_OF_A_JOB + files),
    }


def _core_seconds() -> float:
    """Return the processor time of this process, of those that it has started, and so on."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) + _living_core_seconds(os.getpid())


def _living_core_seconds(pid: int) -> float:
    """Return the processor time of living descendants: workers are kept for the next job.

    Without Linux's `/proc` it is not known, and counts as none.
    """
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):  # It has ended since.
            for child in map(int, task.read_text().split()):
                # After the name, which may hold anything, from the third field on.
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
                seconds += _living_core_seconds(child)
    return seconds


def main() -> int:
    """Take jobs from standard input until it ends."""
    out = _own_output()
    lock = threading.Lock()

    def answer(document: Mapping[str, Any]) -> None:
        with lock, contextlib.suppress(BrokenPipeError):
            out.write(json.dumps(document, default=str) + "\n")
            out.flush()

    wishes: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(wishes,), daemon=True).start()
    while (document := wishes.get()) is not None:
        if "job" not in document:
            continue  # A wish about a job that has ended.
        values = document["job"]
        spec = JobSpec(**{**values, "known_dead": tuple(values["known_dead"])})
        answer(_run_watched(_Job(spec, answer), wishes))
        reached(Step.JOB_REPORTED)
    return 0


def _run_watched(job: _Job, wishes: queue.SimpleQueue[dict[str, Any] | None]) -> dict[str, Any]:
    """Run a job in a thread, and read wishes while it runs; without a parent it is wound down."""
    ended: list[dict[str, Any]] = []

    def work() -> None:
        ended.append(job.run())
        wishes.put({"ended": True})

    thread = threading.Thread(target=work)
    thread.start()
    while (document := wishes.get()) != {"ended": True}:
        if document is None or document.get("wish") == "wind_down":
            reached(Step.JOB_WINDING_DOWN)
            job.control.cancel.wind_down()
        elif document.get("wish") == "cancel":
            job.control.cancel.cancel()
        if document is None:
            wishes.put(None)
            threading.Thread(target=_end_orphan, args=(job.control.cancel,), daemon=True).start()
            break
    thread.join()
    reached(Step.JOB_RETURNED)
    return ended[0]


def _end_orphan(cancel: CancelToken) -> None:
    """Bound the time of a job whose worker has died: another worker has its lease by then."""
    time.sleep(_ORPHAN_SECONDS)
    cancel.cancel()
    time.sleep(_ORPHAN_SECONDS)
    if os.getpgrp() == os.getpid():  # The processes that it has started, a JVM for instance, too.
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _read_lines(wishes: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        with contextlib.suppress(ValueError):
            wishes.put(json.loads(line))
    wishes.put(None)


def _own_output() -> TextIO:
    """Keep standard output to this protocol: what anyone prints goes to standard error."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


if __name__ == "__main__":
    code = main()
    # Libraries print complaints where an interpreter ends step by step.
    sys.stderr.flush()
    os._exit(code)
