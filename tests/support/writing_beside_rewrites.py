"""Rewrites that run beside writers of other engines, and what they do to each other."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lakehand.errors import CommitConflictError
from lakehand.observe.steps import Step, listen
from lakehand.rewrite.prepare import Request
from lakehand.table import open_table
from support.compactions import Rewrite
from support.table_writers import PARTITIONS, GaveUpError, Write, Writer, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STOP_SECONDS = 120
#: How long a compaction that waits for a winner waits.
_WINNER_SECONDS = 5
#: Ids of one writer; writers never touch rows of each other, only files.
_IDS_A_WRITER = 10_000_000
_APPENDED_ROWS = 300


#: The columns of the writers' tables.
CLUSTER_WRITTEN = Rewrite("cluster", Request(operation="cluster", by="id, value", full=True))


def rewrite_to_file(rewrite: Rewrite, place: Path, report: Path, **settings: Any) -> None:
    """Rewrite files in this process and leave the report in a file."""
    done = rewrite(str(place), min_files=2, **settings)
    report.write_text(json.dumps(done.to_json()))


class MaintenanceLoop:
    """lakehand in a process of its own, rewriting files again and again inside `with`."""

    def __init__(self, place: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.writing_beside_rewrites", str(place)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        #: What came of each rewrite; known after the block.
        self.outcomes: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        out, _ = self._process.communicate(timeout=_STOP_SECONDS)
        assert self._process.returncode == 0
        self.outcomes = [json.loads(line) for line in out.splitlines()]

    def figures(self) -> dict[str, int]:
        salvages = [o for o in self.outcomes if o["dropped"] and o["committed"]]
        return {
            "commits": sum(1 for o in self.outcomes if o["committed"]),
            "groups_committed": sum(o["committed"] for o in self.outcomes),
            "groups_lost": sum(o["dropped"] for o in self.outcomes),
            "runs_lost": sum(o["lost"] for o in self.outcomes),
            "salvages": len(salvages),
        }


def rewrite_until_told(place: Path, is_over: Callable[[], bool]) -> None:
    """Print one line of JSON for each rewrite. Every other one waits for somebody to win."""
    rounds = 0
    while not is_over():
        rounds += 1
        listen(_wait_for_winner(place) if rounds % 2 else None)
        print(json.dumps(_rewrite_once(place, rounds)), flush=True)


def _rewrite_once(place: Path, rounds: int) -> dict[str, int]:
    """Compact, and every third time put all rows in order."""
    table = open_table(place, engine="local", min_files=2, target_file_bytes=16 * 1024)
    try:
        report = table.compact() if rounds % 3 else table.cluster(by="id, value", full=True)
        groups = report.groups
    except CommitConflictError:
        return {"committed": 0, "dropped": 0, "lost": 1}
    return {"committed": groups.committed, "dropped": groups.dropped, "lost": 0}


def _wait_for_winner(place: Path) -> Callable[[Step], None]:
    """Return a listener that holds a commit until another version has landed."""

    def hold(step: Step) -> None:
        if step is not Step.RUN_COMMITTING:
            return
        before, deadline = versions(place / "_delta_log"), time.monotonic() + _WINNER_SECONDS
        while versions(place / "_delta_log") == before and time.monotonic() < deadline:
            time.sleep(0.02)

    return hold


@dataclass(kw_only=True)
class Author:
    """Drives one writer with writes drawn at random, all to rows of its own."""

    engine: str
    writer: Writer
    number: int
    #: Rest between two writes, so that a fast engine leaves room to a slow one.
    rest_seconds: float
    given_up: int = 0
    _random: random.Random = field(init=False)
    _blocks: int = field(default=0, init=False)
    _written: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.number)

    def write_until(self, over: threading.Event) -> None:
        while not over.is_set():
            try:
                self.writer.write(self._draw())
            except GaveUpError:
                self.given_up += 1
            over.wait(self.rest_seconds)

    def _draw(self) -> Write:
        kinds = ("append", "append", "delete", "update", "merge") if self._blocks else ("append",)
        kind = self._random.choice(kinds)
        block = self._blocks if kind == "append" else self._random.randrange(self._blocks)
        self._blocks += kind == "append"
        self._written += 1
        first = self.number * _IDS_A_WRITER + block * _APPENDED_ROWS
        return Write(
            kind=kind,
            first=first,
            last=first + _APPENDED_ROWS // (1 if kind == "append" else 3),
            value=self._written,
            part=self._random.choice(PARTITIONS) if kind in {"delete", "update"} else None,
            mark=f"{self.number}-{self._written}",
        )


def write_for(authors: Sequence[Author], *, seconds: float) -> None:
    """Let all authors write at the same time; an error of any is raised."""
    over = threading.Event()
    errors: list[BaseException] = []

    def work(author: Author) -> None:
        try:
            author.write_until(over)
        except BaseException as error:  # noqa: BLE001  raised again below
            errors.append(error)
            over.set()

    threads = [threading.Thread(target=work, args=(author,)) for author in authors]
    for thread in threads:
        thread.start()
    over.wait(seconds)
    over.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def figures_of(authors: Sequence[Author]) -> dict[str, Any]:
    """Return what writing was like for the users of each engine."""
    engines = sorted({author.engine for author in authors})
    return {
        engine: _figures([author for author in authors if author.engine == engine])
        for engine in engines
    }


def _figures(authors: Sequence[Author]) -> dict[str, Any]:
    """Return seconds until a write was acknowledged, tries included, and how often it was lost."""
    efforts = [effort for author in authors for effort in author.writer.efforts]
    p50, p99 = np.percentile([effort.seconds for effort in efforts] or [0.0], [50, 99])
    return {
        "commits": len(efforts),
        "p50_seconds": round(float(p50), 3),
        "p99_seconds": round(float(p99), 3),
        "attempts_lost": sum(effort.lost for effort in efforts),
        "attempts_lost_to_lakehand": sum(effort.lost_to_lakehand for effort in efforts),
        "given_up": sum(author.given_up for author in authors),
    }


def main(place: str) -> None:
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    rewrite_until_told(Path(place), over.is_set)


if __name__ == "__main__":
    main(sys.argv[1])
