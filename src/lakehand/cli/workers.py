"""`lakehand workers`: the processes that run jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from lakehand.cli.output import print_document, print_list, print_screen
from lakehand.cli.service_options import (
    CommandGroup,
    listing,
    open_client,
    service_options,
)
from lakehand.model.quantities import format_ago

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from lakehand.service.store.worker_registry import Worker

_EMPTY = "No workers are running.\n  lakehand serve    starts one"
_WISHES = {"drain": "draining", "stop": "stopping", None: "running"}

worker_argument = click.argument("worker", metavar="WORKER")


@click.group(cls=CommandGroup)
def workers() -> None:
    """Show and end the processes that run jobs.

    WORKER is the id of a worker, as `lakehand workers list` shows it.
    """


@workers.command("list")
@service_options
def list_workers(config: Path | None, store: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Show the workers that are alive."""
    with open_client(config, store) as client:
        found = client.workers.list()
        running = client.jobs.list(states=["running"], limit=10_000)
        now = client.now()
    busy: dict[str, int] = {}
    for entry in running:
        worker_id = entry.job.worker_id or ""
        busy[worker_id] = busy.get(worker_id, 0) + 1
    if as_json:
        documents = [{**one.to_json(), "running": busy.get(one.id, 0)} for one in found]
        print_document({"workers": documents})
    elif not found:
        print_screen(Text(_EMPTY))
    else:
        print_list(*workers_screen(found, busy, now))


def workers_screen(
    workers: Sequence[Worker], busy: Mapping[str, int], now: float
) -> Iterable[RenderableType]:
    """Show one line per worker."""
    grid = listing(
        "worker", "state", "jobs", "engines", "version", "started", "last seen",
        right=("jobs",), fold=("worker", "engines"),
    )  # fmt: skip
    for worker in workers:
        grid.add_row(
            Text(worker.id),
            _WISHES[worker.wish],
            f"{busy.get(worker.id, 0)}/{worker.slots}",
            ", ".join(worker.engines),
            worker.version,
            format_ago(worker.started_at, now),
            format_ago(worker.beat_at, now),
        )
    yield grid


@workers.command("drain")
@worker_argument
@service_options
def drain_worker(config: Path | None, store: str | None, as_json: bool, worker: str) -> None:  # noqa: FBT001
    """Let WORKER commit proved files, and end. The rest of its jobs is queued again."""
    with open_client(config, store) as client:
        client.workers.drain(worker)
    _print_wish(worker, "drain", "asked to drain; it ends when its jobs have", as_json=as_json)


@workers.command("stop")
@worker_argument
@service_options
def stop_worker(config: Path | None, store: str | None, as_json: bool, worker: str) -> None:  # noqa: FBT001
    """End WORKER now. Its jobs are queued again; what they have committed stays."""
    with open_client(config, store) as client:
        client.workers.stop(worker)
    _print_wish(worker, "stop", "asked to stop; its jobs are queued again", as_json=as_json)


def _print_wish(worker: str, wish: str, message: str, *, as_json: bool) -> None:
    if as_json:
        print_document({"worker": worker, "wish": wish})
    else:
        print_screen(Text(f"{worker}: {message}"))
