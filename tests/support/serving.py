"""`lakehand serve` as a process of its own, over tables below a directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakehand
from lakehand.service.store.database import open_database
from lakehand.service.store.events import EventLog
from lakehand.service.store.job_queue import JobQueue
from lakehand.service.store.table_registry import TableRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakehand.service.store.records import Job

#: Nothing is too new to be rewritten, and tables are looked at often.
EAGER = """
[policy.default]
quiet_period = "0s"
min_files = 2
automatic_min_files = 2
check_after = { commits = 2, time = "1s" }
"""


class Lake:
    """A directory with tables, and the service that looks after them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "lakehand.toml"
        self.log = root / "serve.log"
        self.store_url = f"sqlite:///{root}/lakehand.db"
        self.process: subprocess.Popen[bytes] | None = None
        #: All that were started, the latest last.
        self.processes: list[subprocess.Popen[bytes]] = []
        (root / "tables").mkdir(parents=True)

    def configure(self, policies: str = EAGER, service: str = "") -> None:
        source = '[[source]]\nname = "lake"\ninclude = ["tables"]\nevery = "1s"\n'
        section = f'[service]\nlease = "3s"\npoll_interval = "1s"\nstore = "{self.store_url}"\n'
        section += f"{service}\n[web]\nlisten = '127.0.0.1:0'\n"
        self.config.write_text(f"{section}{source}{policies}")

    def create(self, name: str, *, files: int = 4, parts: int = 1, **options: Any) -> Path:
        """Create a table of small files; each row is unique."""
        path = self.root / "tables" / name
        schema = pa.schema({"part": pa.int64(), "id": pa.int64()})
        table = lakehand.create_table(path, schema, partition_by=["part"], **options)
        for number in range(files):
            ids = [number * parts + n for n in range(parts)]
            table.append(pa.table({"part": [n % parts for n in ids], "id": ids}, schema=schema))
        return path

    def start(
        self, *options: str, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process of the service."""
        command = [str(Path(sys.executable).with_name("lakehand")), "serve", "--config"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(self.config), *options],
                stderr=log,
                stdout=log,
                cwd=self.root,
                env={**os.environ, **(environment or {})},
            )
        self.processes.append(self.process)
        return self.process

    def kill_all(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, *, seconds: float = 60) -> int:
        """Let the process end; return its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def read_log(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def jobs(self, **conditions: Any) -> list[Job]:
        database = open_database(self.store_url)
        try:
            return JobQueue(database).listed(**conditions)
        finally:
            database.close()

    def event_kinds(self) -> list[str]:
        database = open_database(self.store_url)
        try:
            return [event["kind"] for event in EventLog(database).since(0)]
        finally:
            database.close()

    def tables(self) -> list[Any]:
        database = open_database(self.store_url)
        try:
            return TableRegistry(database).listed()
        finally:
            database.close()

    def file_counts(self, names: Sequence[str] = ()) -> dict[str, int]:
        """Return how many files each table has; all of them, if none is named."""
        found = names or [path.name for path in sorted((self.root / "tables").iterdir())]
        return {
            name: lakehand.open_table(self.root / "tables" / name).snapshot().file_count
            for name in found
        }

    def wait_for(self, condition: Callable[[], Any], *, seconds: float = 60) -> Any:
        """Return what a condition says once it is true; the log tells why it did not come true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if found := condition():
                return found
            time.sleep(0.1)
        raise AssertionError(f"it did not come true\n{self.read_log()[-4000:]}")
