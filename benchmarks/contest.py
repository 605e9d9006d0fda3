"""Contenders in turns: each run on a fresh copy of the table, timed, watched and checked."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from contents import content_after, content_before, expected_content
from outcomes import Comparison, Result, Run
from process_tree import Watch
from tpch import data_files, link_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outcomes import Content
    from tpch import Workload

_STOP_SECONDS = 20
_READ_BYTES = 16 * 2**20


class ContenderError(Exception):
    """A contender could not do its work; the message is its own."""


class Contender:
    """The process of a contender; it is kept until the end of the block."""

    def __init__(self, name: str, scratch: Path, *, timeout_seconds: float = 900) -> None:
        self.name = name
        self._scratch = scratch / name
        self._timeout_seconds = timeout_seconds

    def __enter__(self) -> Self:
        self._scratch.mkdir(parents=True, exist_ok=True)
        script = Path(__file__).with_name("contender.py")
        with (self._scratch / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, script, self.name, self._scratch],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._scratch,
                env=_environment(),
                text=True,
                start_new_session=True,
            )
        self._receive()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def ask(self, method: str, **arguments: Any) -> tuple[Run, dict[str, Any]]:
        """Have the contender work; return what it took, and what it says about it."""
        request = {"method": method, **arguments}
        with Watch(self._process.pid) as watch:
            self._send(json.dumps(request, default=str))
            answered = self._receive()
        run = Run(
            seconds=round(answered["seconds"], 4),
            cpu_seconds=round(watch.cpu_seconds, 2),
            peak_mib=round(watch.peak_rss_bytes / 2**20),
        )
        return run, answered["report"]

    def _send(self, line: str) -> None:
        # Of a process that has ended, `_receive` tells the last words.
        with contextlib.suppress(BrokenPipeError):
            print(line, file=self._process.stdin, flush=True)

    def _receive(self) -> dict[str, Any]:
        too_late = threading.Timer(self._timeout_seconds, self._process.kill)
        too_late.start()
        line = self._process.stdout.readline()
        too_late.cancel()
        if not line:
            last_words = (self._scratch / "log").read_text(errors="replace").splitlines()[-1:]
            raise ContenderError(f"its process has ended: {''.join(last_words)}")
        answered = json.loads(line)
        if "error" in answered:
            raise ContenderError(answered["error"])
        return answered


def _environment() -> dict[str, str]:
    """Return ours, less what keeps Python from loading modules as it does where they are installed.

    Processes that a contender starts in every run would compile hundreds of modules each time.
    """
    unwanted = "PYTHONDONTWRITEBYTECODE"
    return {name: value for name, value in os.environ.items() if name != unwanted}


def compete(
    workload: Workload,
    contenders: Sequence[Contender],
    *,
    runs: Mapping[str, int],
    scratch: Path,
) -> Comparison:
    """Let all contenders compact the table, in turns, each as often as `runs` says."""
    before = content_before(workload)
    results = {contender.name: Result(name=contender.name) for contender in contenders}
    for number in range(max(runs.values())):
        # Whoever follows a slow one is another one each time.
        first = number % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            result = results[contender.name]
            if number < runs[contender.name] and result.error is None:
                _run_once(workload, contender, result, before=before, scratch=scratch)
    return Comparison(
        name=workload.name,
        remark=workload.remark,
        before=before,
        results=tuple(results.values()),
    )


def _run_once(
    workload: Workload, contender: Contender, result: Result, *, before: Content, scratch: Path
) -> None:
    table = scratch / f"{workload.name}-{contender.name}"
    shutil.rmtree(table, ignore_errors=True)
    link_tree(workload.table, table)
    _warm_page_cache(workload.table)
    os.sync()
    try:
        run, report = contender.ask("compact", **_order(workload, table))
        result.runs.append(run)
        if result.after is None:
            result.methods = report.get("methods", {})
            _check(workload, result, table, before)
    except ContenderError as error:
        result.error = str(error).replace(str(scratch), "").partition("\n")[0]
    finally:
        shutil.rmtree(table)
    said = result.error or f"{result.runs[-1].seconds:.2f} s"
    print(f"{workload.name:8} {contender.name:15} {said}", file=sys.stderr)


def _order(workload: Workload, table: Path) -> dict[str, Any]:
    return {
        "table": str(table),
        "target_file_bytes": workload.target_file_bytes,
        "files_out": workload.files_out,
        "partition_by": workload.partition_by,
    }


def _check(workload: Workload, result: Result, table: Path, before: Content) -> None:
    result.after = content_after(workload, result.name, table)
    if result.after.digest is not None:
        expected = expected_content(workload, result.name, before)
        found = (result.after.rows, result.after.digest)
        result.is_same_rows = found == (expected.rows, expected.digest)


def _warm_page_cache(table: Path) -> None:
    for path in data_files(table):
        with path.open("rb", buffering=0) as file:
            while file.read(_READ_BYTES):
                pass
