"""A new user's first hour: install, `service init`, `serve`, on 50 tables that are written to.

Nothing is set: the configuration file is the one that `service init` writes, and files that are
younger than five minutes are left to their writers, so this takes a quarter of an hour.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakehand

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

PROJECT = Path(__file__).parents[2]
TABLES, FILES, ROWS = 50, 30, 20
HEALTHY_WITHIN_SECONDS = 1200


class Writer(threading.Thread):
    """Appends to all tables in turn with delta-rs, and counts the rows that were acknowledged."""

    def __init__(self, places: list[Path]) -> None:
        super().__init__(daemon=True)
        self.acknowledged = dict.fromkeys(places, 0)
        self.is_over = threading.Event()

    def append(self, place: Path) -> None:
        first = self.acknowledged[place]
        ids = pa.array(range(first, first + ROWS))
        write_deltalake(
            str(place), pa.table({"id": ids, "text": ids.cast("string")}), mode="append"
        )
        self.acknowledged[place] += ROWS

    def run(self) -> None:
        while not self.is_over.is_set():
            for place in self.acknowledged:
                if self.is_over.wait(0.2):
                    return
                self.append(place)

    def check(self) -> None:
        for place, count in self.acknowledged.items():
            read = DeltaTable(str(place)).to_pyarrow_table(columns=["id"])["id"].to_pylist()
            assert sorted(read) == list(range(count)), place


@pytest.fixture(scope="module")
def command(tmp_path_factory) -> Path:
    """The `lakehand` of an environment into which it was just installed, and nothing else."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [environment / "bin" / "pip", "install", "--quiet", "-c", PROJECT / "constraints.txt"]
    subprocess.run([*pip, f"{PROJECT}[service,web]"], check=True)
    return environment / "bin" / "lakehand"


@pytest.fixture
def user(tmp_path):
    """Run commands in a directory of the user's, without what the tests have set."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("LAKEHAND_")
    }

    def start(*words, **options):
        return subprocess.Popen(words, cwd=tmp_path, env=environment, text=True, **options)

    return start


def serve(user, command, log):
    with log.open("a") as output:
        return user(command, "serve", stdout=output, stderr=output)


def wait_until(condition, seconds, log):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(3)


def is_looked_after(place: Path) -> bool:
    """Whether a table is healthy, and that because it was compacted."""
    compacted = any(entry.operation == "OPTIMIZE" for entry in lakehand.open_table(place).history())
    return compacted and lakehand.open_table(place).health().healthy


def test_fifty_tables_become_healthy_and_stay_so_over_a_restart(user, command, tmp_path):
    log = tmp_path / "serve.log"
    writer = Writer([tmp_path / "lake" / f"table_{number:02}" for number in range(TABLES)])
    for place in writer.acknowledged:
        for _ in range(FILES):
            writer.append(place)
    assert user(command, "service", "init", "lake").wait() == 0
    writer.start()
    service = serve(user, command, log)
    try:
        wait_until(lambda: " files became " in log.read_text(), HEALTHY_WITHIN_SECONDS, log)
        service.send_signal(signal.SIGTERM)  # in the middle of work
        assert service.wait(360) == 0
        service = serve(user, command, log)
        places = writer.acknowledged
        wait_until(lambda: all(map(is_looked_after, places)), HEALTHY_WITHIN_SECONDS, log)
    finally:
        writer.is_over.set()
        writer.join()
        service.send_signal(signal.SIGTERM)
        code = service.wait(360)
    assert code == 0
    writer.check()
    assert "Traceback" not in log.read_text()
