"""`maintain` on many tables without a service: each in its own process, some at a time.

One broken table does not stop the others. Needs no job store, and so no SQLAlchemy.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

from lakehand.errors import EXIT_FAILED, NotATableError, ValidationError, error_from_json
from lakehand.service.config import ServiceConfig, SourceSection, load_config
from lakehand.service.discovery import discover
from lakehand.service.job_main import JobSpec
from lakehand.service.job_process import JobProcess, ProcessEndedError
from lakehand.service.job_specs import storage_options
from lakehand.service.policies import find_policy
from lakehand.service.url_patterns import is_pattern
from lakehand.settings import find_setting
from lakehand.storage.location import path_to_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

TableOutcome = Literal[
    "committed", "nothing_to_do", "dry_run", "stopped_early", "failed", "not_run"
]
#: A process is replaced after this many tables, because libraries keep memory.
_TABLES_PER_PROCESS = 50
#: How often a process is asked whether it has something to tell.
_POLL_SECONDS = 0.2
_SLOT_NAME = "maintain"


@dataclass(frozen=True, kw_only=True, slots=True)
class TableResult:
    """The result of one table."""

    #: URL of the table.
    table: str
    #: `committed`; `nothing_to_do`; `dry_run`; `stopped_early`: interrupted, and what was proved
    #: until then is committed; `failed`: a step, or all of it; `not_run`: interrupted before.
    outcome: TableOutcome
    #: Files of the table before and after; null if no step has counted them.
    files_before: int | None = None
    #: Files of the table after.
    files_after: int | None = None
    #: How long it took.
    duration_ms: float = 0.0
    #: Why it failed; of several failed steps the first.
    error: Mapping[str, Any] | None = None
    #: The report of `maintain`; null if it has none.
    report: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TablesReport:
    """Report of `maintain` on many tables."""

    #: The operation.
    operation: str = "maintain"
    #: `committed`: a table was changed; `failed`: none was, and a table failed; `nothing_to_do`;
    #: `dry_run`.
    outcome: str
    #: One entry per table, in the order in which they were found.
    tables: tuple[TableResult, ...]
    #: Directories that could not be listed: what is below them was not maintained.
    errors: tuple[Mapping[str, Any], ...] = ()
    #: Whether nothing was changed.
    dry_run: bool = False
    #: Duration of the call.
    duration_ms: float

    @property
    def exit_code(self) -> int:
        """0 if all succeeded, the code of the failures if they agree, otherwise 1."""
        errors = [one.error or {} for one in self.failed] + list(self.errors)
        codes = {_exit_code(error) for error in errors}
        return 0 if not codes else codes.pop() if len(codes) == 1 else EXIT_FAILED

    @property
    def failed(self) -> tuple[TableResult, ...]:
        """The tables that failed."""
        return tuple(one for one in self.tables if one.outcome == "failed")

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand maintain --json` prints for many tables."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableEvent:
    """What is known of a table while the others are maintained."""

    kind: Literal["started", "progress", "ended"]
    table: str
    #: Fields of `Progress`.
    progress: Mapping[str, Any] | None = None
    result: TableResult | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTables:
    """What is to be maintained: one spec per table."""

    specs: tuple[JobSpec, ...]
    errors: tuple[Mapping[str, Any], ...] = ()


def maintain_tables(
    tables: Iterable[str | Path] = (),
    *,
    config: str | Path | ServiceConfig | None = None,
    jobs: int = 4,
    skip: Sequence[str] = (),
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    on_event: Callable[[TableEvent], None] | None = None,
    **settings: Any,
) -> TablesReport:
    """Run every maintenance step that is due on many tables, each in its own process.

    `tables` are paths and URLs of tables, of directories in which tables are, and patterns such as
    `s3://lake/*/events`; `config` is a configuration file, whose sources are searched if no table
    is named, and whose policies apply. At most `jobs` tables are maintained at a time. A table that
    fails does not stop the others: the report has its error. An interrupt lets running tables
    commit what is proved; a second one stops them at once. Other keyword arguments are settings.
    """
    options = {"skip": list(skip), "dry_run": dry_run}
    found = find_tables(
        tables, config=config, options=options, settings=settings, storage_options=storage_options
    )
    interrupt: KeyboardInterrupt | None = None
    with TablesRun(found, jobs=jobs, dry_run=dry_run, on_event=on_event) as run:
        while not run.is_over:
            try:
                run.wait(_POLL_SECONDS)
            except KeyboardInterrupt as error:
                if interrupt is not None:
                    run.stop()
                interrupt = error
                run.wind_down()
    if interrupt is not None:
        raise interrupt
    return run.report()


def find_tables(
    tables: Iterable[str | Path],
    *,
    config: str | Path | ServiceConfig | None,
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    storage_options: Mapping[str, str] | None = None,
) -> FoundTables:
    """Return what is to be maintained; NotATableError where a name leads to no table."""
    chosen = config if isinstance(config, ServiceConfig) else _load(config)
    given = {
        find_setting(name).name: _plain(value)
        for name, value in settings.items()
        if value is not None
    }
    urls, errors = _search(chosen, list(tables), storage_options)
    specs = []
    for url in urls:
        policy = find_policy(chosen.policies, url, url.rsplit("/", 1)[-1].removesuffix(".lance"))
        if not policy.enabled:
            continue
        specs.append(
            JobSpec(
                url=url,
                verb="maintain",
                options=_with_steps(options, policy.steps),
                settings=given,
                policy_settings=policy.settings,
                storage_options=_options_of(chosen, storage_options)(url) or {},
            )
        )
    return FoundTables(specs=tuple(specs), errors=tuple(errors))


def _load(config: str | Path | None) -> ServiceConfig:
    return ServiceConfig() if config is None else load_config(config)


def _options_of(
    config: ServiceConfig, given: Mapping[str, str] | None
) -> Callable[[str], Mapping[str, str] | None]:
    return lambda url: {**(storage_options(config, url) or {}), **(given or {})} or None


def _search(
    config: ServiceConfig,
    named: Sequence[str | Path],
    given: Mapping[str, str] | None,
) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Return the URLs of all tables, each once, and what could not be listed."""
    sources = [_source_of(str(one)) for one in named] or list(config.sources)
    if not sources:
        message = "no table is named, and the configuration has no [[source]]"
        raise ValidationError(message, field="tables", hint="name tables, directories or patterns")
    urls: dict[str, None] = {}
    errors: list[Mapping[str, Any]] = []
    for source in sources:
        found = discover(source, _options_of(config, given))
        if not found.tables and not found.errors and named:
            message = f"there is no table at {source.name}, nor below it"
            raise NotATableError(message, table=source.name)
        urls |= dict.fromkeys(table.url for table in found.tables)
        errors += found.errors
    return list(urls), errors


def _source_of(named: str) -> SourceSection:
    return SourceSection(name=named, include=(named if is_pattern(named) else path_to_url(named),))


def _with_steps(options: Mapping[str, Any], steps: Sequence[str]) -> dict[str, Any]:
    """Skip the steps that the policy does not have, too."""
    from lakehand.model.maintenance import MAINTENANCE_STEPS

    named = {step.replace("-", "_") for step in options["skip"]}
    skipped = named | (set(MAINTENANCE_STEPS) - set(steps))
    return {**options, "skip": sorted(skipped)}


def _plain(value: Any) -> Any:
    """Return a value of a setting as a process can be told: JSON has no durations."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds()}s"
    return list(value) if isinstance(value, tuple) else value


class TablesRun:
    """Maintains tables in processes, some at a time, and can be ended early."""

    def __init__(
        self,
        found: FoundTables,
        *,
        jobs: int,
        dry_run: bool = False,
        on_event: Callable[[TableEvent], None] | None = None,
    ) -> None:
        if jobs < 1:
            raise ValidationError("jobs must be at least 1", field="jobs", value=jobs)
        self._found = found
        self._dry_run = dry_run
        self._on_event = on_event or (lambda _: None)
        self._specs: queue.SimpleQueue[JobSpec] = queue.SimpleQueue()
        for spec in found.specs:
            self._specs.put(spec)
        self._events: queue.SimpleQueue[TableEvent] = queue.SimpleQueue()
        self._results: dict[str, TableResult] = {}
        # Plain values: a handler of a signal may set them whatever it interrupts.
        self.is_winding_down = False
        self._is_stopping = False
        count = min(jobs, len(found.specs))
        self._threads = [
            threading.Thread(target=self._serve, name=f"{_SLOT_NAME}-{n}") for n in range(count)
        ]
        self._began = time.monotonic()

    # -- what the caller does -----------------------------------------------------------------

    def __enter__(self) -> Self:
        """Start the first tables."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until all have ended; after an error of the caller, stop them."""
        if kind is not None:
            self.stop()
        for thread in self._threads:
            thread.join()

    def wind_down(self) -> None:
        """Start no further table; running ones commit what is proved."""
        self.is_winding_down = True

    def stop(self) -> None:
        """End now: running tables are killed. What they have committed stays."""
        self.is_winding_down = True
        self._is_stopping = True

    @property
    def is_over(self) -> bool:
        """Whether all tables have ended, and all events were passed on."""
        return self._events.empty() and not any(thread.is_alive() for thread in self._threads)

    def wait(self, seconds: float) -> None:
        """Pass on what happens, for this long at most."""
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            return
        self._on_event(event)

    def report(self) -> TablesReport:
        """Return the results of all tables."""
        urls = [spec.url for spec in self._found.specs]
        results = tuple(
            self._results.get(url) or TableResult(table=url, outcome="not_run") for url in urls
        )
        return TablesReport(
            outcome=_outcome(results, dry_run=self._dry_run),
            tables=results,
            errors=self._found.errors,
            dry_run=self._dry_run,
            duration_ms=(time.monotonic() - self._began) * 1000,
        )

    # -- one slot -----------------------------------------------------------------------------

    def _serve(self) -> None:
        process: JobProcess | None = None
        try:
            for spec in self._next_specs():
                self._events.put(TableEvent(kind="started", table=spec.url))
                began = time.monotonic()
                if process is None:
                    process = JobProcess()
                end = self._run(spec, process)
                if "lost" in end or process.jobs >= _TABLES_PER_PROCESS:
                    process.kill()
                    process = None
                duration_ms = (time.monotonic() - began) * 1000
                result = _result(spec, end, duration_ms, dry_run=self._dry_run)
                self._results[spec.url] = result
                self._events.put(TableEvent(kind="ended", table=spec.url, result=result))
        finally:
            if process is not None:
                process.close()

    def _next_specs(self) -> Iterator[JobSpec]:
        while not self.is_winding_down:
            try:
                yield self._specs.get_nowait()
            except queue.Empty:
                return

    def _run(self, spec: JobSpec, process: JobProcess) -> dict[str, Any]:
        """Return the end of a table: a report or an error; `lost` if its process is no more."""
        process.begin(spec)
        is_told = False
        while not self._is_stopping:
            try:
                answer = process.answer(_POLL_SECONDS) or {}
            except ProcessEndedError as error:
                return _lost("JOB_CRASHED", f"the process of the table {error}")
            if "report" in answer or "error" in answer:
                return answer
            if "progress" in answer:
                progress = answer["progress"]
                self._events.put(TableEvent(kind="progress", table=spec.url, progress=progress))
            if self.is_winding_down and not is_told:
                process.wish("wind_down")
                is_told = True
        return _lost("INTERRUPTED", "stopped before it ended; what it has committed stays")


def _exit_code(error: Mapping[str, Any]) -> int:
    # Errors within a step that ran have no code.
    return error_from_json(error).exit_code if "code" in error else EXIT_FAILED


def _lost(code: str, message: str) -> dict[str, Any]:
    return {"lost": True, "error": {"code": code, "message": message, "retryable": True}}


def _result(
    spec: JobSpec, end: Mapping[str, Any], duration_ms: float, *, dry_run: bool
) -> TableResult:
    report = end.get("report")
    if report is None:
        return TableResult(
            table=spec.url, outcome="failed", duration_ms=duration_ms, error=end["error"]
        )
    before, after = _files(report)
    errors = report.get("errors") or [None]
    outcome: TableOutcome = report["outcome"]
    if errors[0] is not None:
        outcome = "failed"
    elif not dry_run and report["stopped_early"]:
        outcome = "stopped_early"
    return TableResult(
        table=spec.url,
        outcome=outcome,
        files_before=before,
        files_after=after,
        duration_ms=duration_ms,
        error=errors[0],
        report=report,
    )


def _files(report: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the files of the table before and after; in a dry run, what is expected."""
    for step in report["steps"]:
        found = step.get("report") or {}
        counted = found.get("forecast") if report["dry_run"] else found
        if step["step"] in {"compact", "cluster"} and counted and "files_before" in counted:
            return counted["files_before"], counted["files_after"]
    return None, None


def _outcome(results: Sequence[TableResult], *, dry_run: bool) -> str:
    outcomes = {result.outcome for result in results}
    if dry_run:
        return "dry_run"
    if outcomes & {"committed", "stopped_early"}:
        return "committed"
    return "failed" if "failed" in outcomes else "nothing_to_do"
