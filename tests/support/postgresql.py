"""A real PostgreSQL server for tests: its own directory, a Unix socket, no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEBIAN = Path("/usr/lib/postgresql")
_OPTIONS = (
    "-c listen_addresses= -c fsync={fsync} -c max_connections=200"
    " -c unix_socket_directories={directory}"
)


def find_programs() -> Path | None:
    """Return the directory of PostgreSQL's programs; None if it is not installed."""
    installed = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if installed:
        return installed[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _owner() -> str | None:
    """Return the user that the server runs as: it refuses to run as root."""
    return "postgres" if os.geteuid() == 0 else None


@dataclass(frozen=True, slots=True)
class PostgresqlServer:
    """A running server."""

    programs: Path
    directory: Path
    #: Durability is not what tests are about, but what benchmarks pay for.
    is_durable: bool = False

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg:///{database}?host={self.directory}&user=lakehand"

    def run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        subprocess.run(
            command, user=_owner(), cwd=self.directory, check=True, capture_output=True, timeout=120
        )

    def start(self) -> None:
        log = self.directory / "log"
        fsync = "on" if self.is_durable else "off"
        options = _OPTIONS.format(directory=self.directory, fsync=fsync)
        self.run(
            "pg_ctl",
            "-D",
            str(self.directory / "data"),
            "-l",
            str(log),
            "-o",
            options,
            "-w",
            "start",
        )

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "-D", str(self.directory / "data"), "-m", mode, "-w", "stop")


def serve_postgresql(*, is_durable: bool = False) -> Iterator[PostgresqlServer]:
    """Start a server and end it afterwards."""
    programs = find_programs()
    assert programs is not None
    # The path of a socket must be short.
    directory = Path(tempfile.mkdtemp(prefix="lakehand-pg-", dir="/tmp"))
    server = PostgresqlServer(programs, directory, is_durable)
    try:
        if _owner():
            shutil.chown(directory, "postgres")
        server.run("initdb", "-D", str(directory / "data"), "-U", "lakehand", "--auth=trust", "-N")
        server.start()
        yield server
        server.stop("immediate")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
