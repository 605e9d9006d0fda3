"""Several processes that want the same key at the same moment."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

from lakehand.errors import ObjectExistsError

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

    from lakehand.storage import Store

#: Ample, because how long it takes says more about the machine than about the code.
_TIMEOUT_SECONDS = 200


def race_for_keys(store: Store, keys: list[str], *, processes: int) -> dict[str, list[int]]:
    """Let `processes` put each key at the same time; return who reported success, by key."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    answers = context.Queue()
    runners = [
        context.Process(target=_run, args=(store, keys, number, barrier, answers))
        for number in range(processes)
    ]
    for runner in runners:
        runner.start()
    won = dict(answers.get(timeout=_TIMEOUT_SECONDS) for _ in runners)
    for runner in runners:
        runner.join(timeout=_TIMEOUT_SECONDS)
    return {key: [number for number, mine in won.items() if key in mine] for key in keys}


def _run(store: Store, keys: list[str], number: int, barrier: Barrier, answers: Queue) -> None:
    mine = []
    for key in keys:
        barrier.wait(timeout=_TIMEOUT_SECONDS)
        try:
            store.put_if_absent(key, str(number).encode())
        except ObjectExistsError:
            continue
        mine.append(key)
    answers.put((number, mine))
