"""A server program of others, on a free loopback port, for as long as a block runs."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

START_SECONDS = 100
_PR_SET_PDEATHSIG = 1


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def run_server(
    command: Sequence[str | Path], port: int, *, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block, or this process, ends; it listens when the block begins."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_end_with_parent,  # noqa: PLW1509  one call into the C library
    )
    try:
        _wait_until_ready(process, port)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


def _end_with_parent() -> None:
    """Ask Linux to end the server with the tests, also when those are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"{process.args[0]} did not listen within {START_SECONDS} s")
