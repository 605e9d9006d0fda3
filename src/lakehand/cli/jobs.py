"""`lakehand jobs`: the work of the service, done and waiting."""

from __future__ import annotations

import json
import signal
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lakehand.cli.output import print_document, print_lines, print_list, print_screen
from lakehand.cli.progress_bar import Phases, describe_amount, make_bars
from lakehand.cli.screen import figures_grid
from lakehand.cli.service_options import (
    CommandGroup,
    format_seconds,
    listing,
    open_client,
    service_options,
    shown_location,
)
from lakehand.cli.shared_options import table_argument
from lakehand.errors import EXIT_FAILED, error_from_json
from lakehand.model.quantities import format_ago, format_duration
from lakehand.observe import Progress
from lakehand.service.job_states import LANE_OF, STATES, JobState
from lakehand.service.wait_words import WAITS, describe_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from lakehand.service.client import ServiceClient
    from lakehand.service.client_values import JobEntry
    from lakehand.service.store.records import Job

_STYLES: Mapping[JobState, str] = {
    "queued": "yellow",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "dim",
}
_OUTCOMES = {
    "committed": "committed",
    "nothing_to_do": "nothing to do",
    "stopped_early": "stopped early",
    "table_gone": "the table is gone",
    "superseded": "replaced by a newer job",
    "lease_lost": "its worker died",
    "cancelled": "on request",
}
_EMPTY = (
    "No jobs.\n"
    "  lakehand jobs submit TABLE    asks for one\n"
    "  lakehand serve                queues and runs what is due automatically"
)
_SIGNALLED = 128


class _JobNumber(click.ParamType[int]):
    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) or (value.isascii() and value.isdigit() and len(value) < 18):  # noqa: PLR2004  a 64-bit number
            return int(value)
        return self.fail(
            f"{value!r} is not the number of a job; `lakehand jobs list` shows them", param, ctx
        )


job_argument = click.argument("job", type=_JobNumber(), metavar="JOB")


@click.group(cls=CommandGroup)
def jobs() -> None:
    """Show and change the jobs of the service.

    JOB is the number of a job, as `lakehand jobs list` shows it.
    """


@jobs.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES),
              help="Only jobs in this state. Repeatable.")  # fmt: skip
@click.option("--table", metavar="TABLE", help="Only jobs of this table.")
@click.option("--verb", type=click.Choice([verb.replace("_", "-") for verb in LANE_OF]),
              help="Only jobs that run this.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
              help="Show at most N jobs.")  # fmt: skip
@service_options
def list_jobs(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    verb: str | None,
    **filters: Any,
) -> None:
    """Show jobs, the newest first."""
    with open_client(config, store) as client:
        named = None if verb is None else verb.replace("-", "_")
        found = client.jobs.list(verb=named, **filters)
        now = client.now()
    if as_json:
        print_document({"jobs": [entry.to_json() for entry in found]})
    elif not found:
        is_filtered = named is not None or filters["states"] or filters["table"]
        print_screen(Text("No jobs match." if is_filtered else _EMPTY))
    else:
        print_list(*jobs_screen(found, now))


def jobs_screen(entries: Sequence[JobEntry], now: float) -> Iterable[RenderableType]:
    """Show one line per job."""
    grid = listing(
        "job", "table", "verb", "state", "queued", "took", "result",
        right=("job",), fold=("table", "result"),
    )  # fmt: skip
    for entry in entries:
        job = entry.job
        grid.add_row(
            str(job.id),
            Text(_table_of(job)),
            job.verb.replace("_", "-"),
            Text(job.state, style=_STYLES[job.state]),
            format_ago(job.queued_at, now),
            _took(job, now),
            # One line per job: `jobs show` has the whole message.
            Text(describe_result(entry, now), no_wrap=True, overflow="ellipsis"),
        )
    yield grid


def describe_result(entry: JobEntry, now: float) -> str:
    """Say in one line how a job ended, how far it is, or what it waits for."""
    job = entry.job
    if job.state == "queued":
        waits = _describe_wait(entry, now)
        return f"{waits}; last attempt: {job.error['message']}" if job.error else waits
    if job.state == "running":
        wish = {"cancel": ", asked to stop", "wind_down": ", winding down"}.get(job.wish or "", "")
        return f"{_describe_progress(job)}{wish}"
    if job.error is not None and job.state == "failed":
        return str(job.error.get("message"))
    if job.outcome == "committed" and job.report:
        return _describe_report(job.report)
    return _OUTCOMES.get(job.outcome or "", job.outcome or "-")


def _describe_wait(entry: JobEntry, now: float) -> str:
    if not entry.waits:
        return WAITS["turn"]
    return describe_wait(entry.waits[0], now)


def _describe_report(report: Mapping[str, Any]) -> str:
    """Say what was done: the steps of `maintain`, and the files before and after."""
    steps = report.get("steps") or ()
    done = [step["step"].replace("_", "-") for step in steps if step["outcome"] == "committed"]
    words = " and ".join(done) or "committed"
    for part in (report, *(step.get("report") or {} for step in steps)):
        before, after = part.get("files_before"), part.get("files_after")
        if before is not None and before != after:
            return f"{words}, {before:,} → {after:,} files"
    return words


def _describe_progress(job: Job) -> str:
    if not job.progress:
        return "started"
    progress = Progress(**job.progress)
    return f"{progress.phase} {describe_amount(progress)}".strip()


def _took(job: Job, now: float) -> str:
    if job.started_at is None:
        return "-"
    return format_seconds((job.ended_at or now) - job.started_at)


def _table_of(job: Job) -> str:
    return job.table_name or job.table_url or str(job.table_id)


@jobs.command("show")
@job_argument
@service_options
def show_job(config: Path | None, store: str | None, as_json: bool, job: int) -> None:  # noqa: FBT001
    """Show JOB: state, reasons, attempts, report or error."""
    with open_client(config, store) as client:
        entry = client.jobs.show(job)
        events = client.jobs.events(job)
        now = client.now()
    if as_json:
        print_document({**entry.to_json(), "events": events})
    else:
        print_screen(*job_screen(entry, events, now))


def job_screen(
    entry: JobEntry, events: Sequence[Mapping[str, Any]], now: float
) -> Iterable[RenderableType]:
    """Show everything of one job, with its events."""
    job = entry.job
    yield Text.assemble((f"job {job.id}", "bold"), f": {_verb(job)} {_table_of(job)}")
    yield figures_grid(_job_rows(entry, now))
    if events:
        yield Text("what happened", style="dim")
        grid = listing("", "", "", fold=("",))
        grid.show_header = False
        for event in events:
            details = (f"{key} {value}" for key, value in event["details"].items() if value)
            who = f"by {event['by']}" if event["by"] else ""
            line = "; ".join(part for part in (who, ", ".join(details)) if part)
            moment = event["at"][:19].replace("T", " ")
            grid.add_row(moment, event["kind"].removeprefix("job."), Text(line))
        yield grid


def _verb(job: Job) -> str:
    return job.verb.replace("_", "-")


def _job_rows(entry: JobEntry, now: float) -> Iterator[tuple[str, str]]:
    job = entry.job
    yield "state", f"{job.state}: {describe_result(entry, now)}"
    if job.table_url:
        yield "location", shown_location(job.table_url)
    who = f" by {job.asked_by}" if job.asked_by else ""
    yield "requested", f"{format_ago(job.queued_at, now)}{who}, trigger: {job.trigger}"
    if job.reasons:
        yield "reason", ", ".join(job.reasons)
    if job.score and job.expected:
        yield "score", _score(job)
    options = [f"{key} = {value}" for key, value in job.options.items() if value != []]
    if options:
        yield "options", ", ".join(options)
    yield "attempts", f"{job.attempt} of at most {job.max_attempts}"
    if job.started_at is not None:
        yield "took", _took(job, now)
    if job.worker_id:
        yield "worker", job.worker_id
    if job.error is not None and job.error.get("hint"):
        yield "hint", str(job.error["hint"])
    yield from _report_rows(job.report or {})


def _score(job: Job) -> str:
    saved = format_duration(timedelta(seconds=job.expected["benefit_seconds"]))
    taken = format_duration(timedelta(seconds=job.expected["core_seconds"]))
    return f"{job.score:,.1f}: saves readers {saved} per day, takes {taken} of CPU time"


def _report_rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Describe the steps of `maintain`; of other verbs, the files before and after."""
    label = "steps"
    for step in report.get("steps") or ():
        outcome = step["outcome"].replace("_", " ")
        yield label, f"{step['step'].replace('_', '-')}: {outcome}; {step['reason']}"
        label = ""
    if "files_before" in report and "files_after" in report:
        yield "files", f"{report['files_before']:,} → {report['files_after']:,}"


@jobs.command("submit")
@table_argument
@click.argument("verb", default="maintain", metavar="[VERB]")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
              help="Argument or setting of the verb. Repeatable.")  # fmt: skip
@click.option("--urgent", is_flag=True, help="Run it before all others.")
@click.option("--watch", is_flag=True, help="Watch it until it ends, as `jobs watch` does.")
@service_options
def submit_job(
    config: Path | None,
    store: str | None,
    as_json: bool,  # noqa: FBT001
    table: str,
    verb: str,
    options: tuple[str, ...],
    urgent: bool,  # noqa: FBT001
    watch: bool,  # noqa: FBT001
) -> int:
    """Request a job on TABLE. VERB is `maintain` unless another one is given.

    If such a job is already queued, no second one is created. A worker runs it: `lakehand serve`
    starts one.
    """
    given = dict(_option(pair) for pair in options)
    with open_client(config, store) as client:
        entry = client.jobs.submit(table, verb, urgent=urgent, **given)
        if watch:
            return _watch(client, entry.job.id, as_json=as_json)
        _print_entry(entry, client.now(), as_json=as_json)
    return 0


def _option(pair: str) -> tuple[str, Any]:
    name, separator, value = pair.partition("=")
    if not (name and separator):
        raise click.BadParameter(f"{pair!r}: write it as NAME=VALUE")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), value


@jobs.command("watch")
@job_argument
@service_options
def watch_job(config: Path | None, store: str | None, as_json: bool, job: int) -> int:  # noqa: FBT001
    """Show the progress of JOB until it ends.

    The exit code is 0 if it succeeded, that of its error if it failed, 1 if it was cancelled.
    Ctrl-C ends this command; the job continues.
    """
    with open_client(config, store) as client:
        return _watch(client, job, as_json=as_json)


def _watch(client: ServiceClient, number: int, *, as_json: bool) -> int:
    try:
        entry = _follow(client, number)
    except KeyboardInterrupt as stopped:
        click.echo(f"stopped watching; job {number} continues", err=True)
        return _SIGNALLED + getattr(stopped, "number", signal.SIGINT)
    _print_entry(entry, client.now(), as_json=as_json)
    return exit_code_of(entry.job)


def _follow(client: ServiceClient, number: int) -> JobEntry:
    """Show a job until it ends, and return it: bars on a terminal, else one line per change."""
    entry = client.jobs.show(number)
    if not sys.stderr.isatty():
        shown = ""
        for entry in client.jobs.watch(number):
            now = client.now()
            line = f"job {number}: {entry.job.state}, {describe_result(entry, now)}"
            if line != shown and entry.job.ended_at is None:
                click.echo(line, err=True)
            shown = line
        return entry
    from rich.console import Console

    with make_bars(Console(stderr=True)) as bars:
        phases = Phases(bars)
        for entry in client.jobs.watch(number):
            if entry.job.progress:
                phases.show(Progress(**entry.job.progress))
            else:
                phases.say(describe_result(entry, client.now()))
    return entry


def exit_code_of(job: Job) -> int:
    """Return the exit code of a job that has ended."""
    if job.state == "succeeded":
        return 0
    if job.state == "failed" and job.error and "code" in job.error:
        return error_from_json({"message": "", **job.error}).exit_code
    return EXIT_FAILED


def _changing(name: str, help_text: str, change: Callable[[Any, int], JobEntry]) -> None:
    """Declare a command that changes one job."""

    @jobs.command(name, help=help_text)
    @job_argument
    @service_options
    def command(config: Path | None, store: str | None, as_json: bool, job: int) -> None:  # noqa: FBT001
        with open_client(config, store) as client:
            entry = change(client.jobs, job)
            _print_entry(entry, client.now(), as_json=as_json)


_changing(
    "cancel",
    "End JOB if it is queued; ask it to stop if it runs. What it has committed stays.",
    lambda jobs, number: jobs.cancel(number),
)
_changing(
    "pause",
    "Do not start JOB. If it is running, it commits the files that are proved, and waits.",
    lambda jobs, number: jobs.pause(number),
)
_changing("resume", "Let JOB start again.", lambda jobs, number: jobs.resume(number))
_changing(
    "retry",
    "Queue the work of JOB again if it has ended; let it start at once if it waits.",
    lambda jobs, number: jobs.retry(number),
)


def _print_entry(entry: JobEntry, now: float, *, as_json: bool) -> None:
    if as_json:
        print_document(entry.to_json())
        return
    print_lines([_entry_line(entry, now)])


def _entry_line(entry: JobEntry, now: float) -> str:
    job, result = entry.job, describe_result(entry, now)
    return f"job {job.id}: {_verb(job)} {_table_of(job)}: {job.state}, {result}"


def changed_job_screen(entry: JobEntry, now: float) -> Iterable[RenderableType]:
    """Show a job that was waited for, or one line of a job that goes on."""
    if entry.job.report is not None:
        return job_screen(entry, (), now)
    return [Text(_entry_line(entry, now))]
