"""A real S3 server that is killed now and then, behind a proxy that spoils some answers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Self

from support import faulty_proxy
from support.s3_server import S3Server, run_s3_server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from campaign.rounds import Trial

#: What happens to requests, and to answers.
_REFUSALS = (faulty_proxy.REFUSE, faulty_proxy.TWICE)
_FAULTS = (faulty_proxy.LOSE, faulty_proxy.CUT, faulty_proxy.FAIL)
#: Of all requests, and of all answers: one of these in each trial.
_SPOILED = (0.01, 0.03, 0.08)
_DOWN_SECONDS = (0.05, 0.8)


class FlakyS3:
    """Started at its first use; everything that happens is drawn from the seed of a trial."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._running = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._chance = random.Random()
        self._spoiled = 0.0
        self.server: S3Server | None = None
        self.proxy: faulty_proxy.FaultyProxy | None = None

    def __enter__(self) -> Self:
        self._start()
        self.proxy = self._stack.enter_context(faulty_proxy.run_faulty_proxy(self.server.endpoint))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._running.close()

    def _start(self, port: int | None = None) -> None:
        self.server = self._running.enter_context(run_s3_server(self._folder, port=port))

    @property
    def options(self) -> dict[str, str]:
        """How to reach the server itself."""
        return self.server.options

    @property
    def spoiled_options(self) -> dict[str, str]:
        return {**self.options, "endpoint": self.proxy.endpoint}

    def begin(self, trial: Trial) -> None:
        self._chance = random.Random(trial.seed)
        self._spoiled = self._chance.choice(_SPOILED)
        self.proxy.struck.clear()
        self.proxy.refusal = partial(self._draw, _REFUSALS)
        self.proxy.fault = partial(self._draw, _FAULTS)

    def _draw(self, kinds: Sequence[str], _method: str, _path: str) -> str | None:
        with self._lock:
            is_spoiled = self._chance.random() < self._spoiled
            return self._chance.choice(kinds) if is_spoiled else None

    @property
    def faults(self) -> int:
        return len(self.proxy.struck)

    def restart(self) -> None:
        """Kill the server, and start it again on the same port and files."""
        port = int(self.server.endpoint.rpartition(":")[2])
        os.kill(self.server.pid, signal.SIGKILL)
        self._running.close()
        time.sleep(self._chance.uniform(*_DOWN_SECONDS))
        self._start(port)


def delta_rs_options(storage: dict[str, str]) -> dict[str, str] | None:
    if not storage:
        return None
    return {
        "AWS_ENDPOINT_URL": storage["endpoint"],
        "AWS_REGION": storage["region"],
        "AWS_ACCESS_KEY_ID": storage["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": storage["secret_access_key"],
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }
