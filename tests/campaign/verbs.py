"""One verb in a process of its own, which is killed, stopped, or short of something."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import resource
import signal
import threading
import time
import traceback
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakehand
from campaign.rounds import BLOCK_IDS, BLOCK_ROWS, Round, Verb
from lakehand.errors import LakehandError
from lakehand.hot import HotTable
from lakehand.observe.steps import listen
from lakehand.sink import TableSink
from lakehand.storage import open_store
from lakehand.testing import Fault, FaultKind, FaultStore
from support.compactions import tasks_inline
from support.later_vacuums import vacuum_later

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("value", pa.int64()),
        ("note", pa.string()),
    ]
)
SINK = "campaign"
#: Short, so that a verb may take over from one that was stopped for a second.
RUNS = {"heartbeat_interval": "100ms", "takeover_after": "1s"}
END_SECONDS = 180.0
STOPPED_SECONDS = 1.5
#: From one named step to the next, as a share of the time of a verb.
_STEP_SHARE = 0.03

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["campaign.verbs", "lakehand.rewrite.run", "lakehand.rows.upsert"])
# Lance does not survive a fork.
_spawns = multiprocessing.get_context("spawn")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a table is, and how its verbs run."""

    uri: str
    storage: dict[str, str] = field(default_factory=dict)
    is_lance: bool = False
    #: Tasks run in worker processes instead of in the process of the verb.
    has_workers: bool = False
    #: Tasks run on Spark, in the driver that trials share.
    has_spark: bool = False
    #: Requests to the store fail at random, as this seed says.
    fault_seed: int | None = None
    #: Most bytes of a file that the process may write, and most files it may have open.
    limits: dict[str, int] = field(default_factory=dict)
    #: Directory into which the process copies what it syncs.
    memory: str | None = None
    #: The clock is that of its environment, which a fork would not read.
    has_clock: bool = False

    def open(self, **settings: Any) -> lakehand.Table:
        return lakehand.open_table(self.uri, storage_options=self.storage or None, **settings)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a verb ended: done, refused with an error code, or gone without an answer."""

    outcome: str
    code: str | None = None
    text: str = ""
    faults: int = 0
    seconds: float = 0.0
    step: str | None = None
    #: What was killed beneath it, while it went on: an executor, or a Python worker.
    lost: str | None = None


def rows_of(blocks: tuple[int, ...] | list[int], value: int | None = None) -> pa.Table:
    """Return the rows of blocks, whose values follow from their ids unless one is given."""
    ids = [block * BLOCK_IDS + number for block in blocks for number in range(BLOCK_ROWS)]
    return pa.table(
        {
            "id": ids,
            "part": [f"p{i % 3}" for i in ids],
            "value": [i % 7 if value is None else value for i in ids],
            "note": [None if i % 5 == 0 else f"note {i % 11}" for i in ids],
        },
        schema=SCHEMA,
    )


def condition_of(blocks: tuple[int, ...]) -> str:
    spans = [f"(id >= {b * BLOCK_IDS} AND id < {(b + 1) * BLOCK_IDS})" for b in blocks]
    return " OR ".join(spans)


class Process:
    """The process of one verb."""

    def __init__(self, place: Place, verb: Verb, folder: Path) -> None:
        self._answer, self._steps = folder / "answer.json", folder / "step"
        for path in (self._answer, self._steps):
            path.unlink(missing_ok=True)
        context = _spawns if place.is_lance or place.has_clock else _forks
        arguments = (place, verb, str(self._answer), str(self._steps))
        self._process = context.Process(target=_perform, args=arguments)
        self._started = time.monotonic()
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, number: int, *, tree: bool = False) -> bool:
        """Send a signal, to its process group with `tree`; return whether it was there."""
        try:
            os.killpg(self.pid, number) if tree else os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def wait(self, seconds: float) -> bool:
        self._process.join(seconds)
        return not self._process.is_alive()

    def wait_for_steps(self, count: int) -> bool:
        """Wait until it has come to this number of named steps; return whether it has ended."""
        until = time.monotonic() + END_SECONDS
        while self._step()[0] < count and time.monotonic() < until:
            if self.wait(0.001):
                return True
        return False

    def _step(self) -> tuple[int, str | None]:
        """Return how many named steps it has come to, and the last of them."""
        try:
            count, name = self._steps.read_text().split()
        except (OSError, ValueError):  # It has come to none, or is about to write.
            return 0, None
        return int(count), name

    def end(self) -> Ended:
        if not self.wait(END_SECONDS):
            self.send(signal.SIGKILL, tree=True)
            self._process.join()
            return Ended(outcome="defect", text=f"did not end within {END_SECONDS} s")
        # Workers that outlive a killed verb end by themselves; this makes sure of it.
        self.send(signal.SIGKILL, tree=True)
        seconds = time.monotonic() - self._started
        step = self._step()[1]
        if self._answer.exists():
            told = json.loads(self._answer.read_text())
            return Ended(**told, seconds=seconds, step=step)
        if self._process.exitcode == -signal.SIGKILL:
            return Ended(outcome="killed", seconds=seconds, step=step)
        return Ended(outcome="defect", text=f"exit {self._process.exitcode}", step=step)


def _perform(place: Place, verb: Verb, answer: str, steps: str) -> None:
    os.setpgid(0, 0)
    steps_file = os.open(steps, os.O_CREAT | os.O_WRONLY)
    numbers = itertools.count(1)
    listen(lambda step: _note(steps_file, f"{next(numbers)} {step.value}"))
    if place.memory is not None:
        from campaign.power import remember_syncs

        remember_syncs(Path(place.memory), Path(place.uri))
    faults = _draw_faults(place)
    with nullcontext() if place.has_workers else tasks_inline():
        _limit(place.limits)
        told = outcome_of(partial(_call, place, verb, faults))
        _limit(dict.fromkeys(place.limits, -1))
    told["faults"] = sum(fault.hits for fault in faults)
    temporary = Path(f"{answer}.new")
    temporary.write_text(json.dumps(told))
    temporary.replace(answer)
    os._exit(0)


def outcome_of(call: Callable[[], None]) -> dict[str, Any]:
    """Return what `Ended` says of a call."""
    try:
        call()
    except LakehandError as error:
        return {"outcome": "refused", "code": error.code, "text": str(error)[:300]}
    except Exception:  # noqa: BLE001  an untyped error is a defect
        return {"outcome": "defect", "text": traceback.format_exc()}
    return {"outcome": "done"}


def _note(file: int, text: str) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, text.encode(), 0)


_RESOURCES = {"file_bytes": resource.RLIMIT_FSIZE, "files": resource.RLIMIT_NOFILE}


def _limit(limits: Mapping[str, int]) -> None:
    for name, most in limits.items():
        number = _RESOURCES[name]
        hard = resource.getrlimit(number)[1]
        resource.setrlimit(number, (hard if most < 0 else most, hard))
    if "file_bytes" in limits:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


_FAULTS = (FaultKind.FAIL_BEFORE, FaultKind.FAIL_AFTER, FaultKind.LOST_ANSWER)


def _draw_faults(place: Place) -> list[Fault]:
    if place.fault_seed is None:
        return []
    chance = random.Random(place.fault_seed)
    return [
        Fault(
            kind=chance.choice(_FAULTS),
            skip=chance.randrange(40),
            times=chance.choice([1, 1, 2, 5]),
            key=chance.choice(["*", "*", "*.parquet", "_delta_log/*", "_lakehand/*"]),
        )
        for _ in range(chance.choice([1, 3, 6]))
    ]


def _call(place: Place, verb: Verb, faults: list[Fault]) -> None:
    if faults:
        store = FaultStore(open_store(place.uri, place.storage or None), faults)
        table = lakehand.open_table(store, engine="local", **RUNS)
    else:
        table = place.open(engine="local", **RUNS)
    call_verb(table, place, verb)


def call_verb(table: lakehand.Table, place: Place, verb: Verb) -> None:
    _VERBS[verb.name](table, place, verb)


def _upsert(table: lakehand.Table, _place: Place, verb: Verb) -> None:
    table.upsert(rows_of(verb.blocks, verb.value), key=["id"], **verb.options)


def _merge(table: lakehand.Table, _place: Place, verb: Verb) -> None:
    rows = rows_of(verb.blocks, verb.value)
    merge = table.merge(rows, on=["id"], **verb.options)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _hot(_table: lakehand.Table, place: Place, verb: Verb) -> None:
    """Change each block in a hot table, note how many are acknowledged, and flush."""
    log = hot_log(place)
    with HotTable(place.uri, log=log, key=["id"]) as table:
        for number, block in enumerate(verb.blocks, 1):
            table.upsert(rows_of([block], verb.value))
            with log.with_suffix(".acknowledged").open("w") as file:
                file.write(str(number))


def _recover_hot(_table: lakehand.Table, place: Place, _verb: Verb) -> None:
    """Open a hot table as after a crash: what its log has is flushed."""
    with HotTable(place.uri, log=hot_log(place), key=["id"]):
        pass


def hot_log(place: Place) -> Path:
    """Return the directory in which the hot table of a local table has its log."""
    return Path(f"{place.uri}-log")


def acknowledged(place: Place) -> int:
    """Return how many changes of the last hot table were acknowledged, and forget it."""
    noted = hot_log(place).with_suffix(".acknowledged")
    try:
        count = int(noted.read_text() or 0)
    except FileNotFoundError:
        return 0
    noted.unlink()
    return count


def _delete(table: lakehand.Table, _place: Place, verb: Verb) -> None:
    table.delete(where=condition_of(verb.blocks), **verb.options)


def _append(table: lakehand.Table, _place: Place, verb: Verb) -> None:
    table.append(rows_of(verb.blocks))


def _sink(_table: lakehand.Table, place: Place, verb: Verb) -> None:
    """Write each block as an epoch of its own; those that are committed are not written again."""
    with TableSink(place.uri, writer_id=SINK, storage_options=place.storage or None) as sink:
        for block in verb.blocks:
            sink.begin_epoch(block + 1)
            for batch in rows_of([block]).to_batches(max_chunksize=15):
                sink.write(batch)
            sink.commit_epoch()


def _restore(table: lakehand.Table, _place: Place, _verb: Verb) -> None:
    """Restore the present version: no row may change."""
    table.restore(version=table.version())


def _vacuum(_table: lakehand.Table, place: Place, verb: Verb) -> None:
    vacuum_later(open_store(place.uri, place.storage or None), **verb.options)


def _plain(name: str) -> Callable[[lakehand.Table, Place, Verb], None]:
    return lambda table, _place, verb: getattr(table, name)(**verb.options)


_PLAIN = ("compact", "cluster", "maintain", "checkpoint", "statistics", "purge", "clean_logs")
_VERBS: dict[str, Callable[[lakehand.Table, Place, Verb], None]] = {
    **{name: _plain(name) for name in (*_PLAIN, "repair", "deduplicate")},
    "upsert": _upsert,
    "merge": _merge,
    "hot": _hot,
    "recover_hot": _recover_hot,
    "delete": _delete,
    "append": _append,
    "sink": _sink,
    "restore": _restore,
    "vacuum": _vacuum,
}


def _is_inline(place: Place) -> bool:
    return not (place.has_workers or place.is_lance or place.has_spark)


def _way_of(verb: Verb, place: Place) -> tuple[str, bool, bool]:
    return verb.name, _is_inline(place), place.has_spark


class Durations:
    """How long verbs take, so that a random moment lies within one."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, bool, bool], float] = {}
        self._lock = threading.Lock()

    def expected(self, verb: Verb, place: Place) -> float:
        return self._seconds.get(_way_of(verb, place), 0.3 if _is_inline(place) else 1.5)

    def note(self, verb: Verb, place: Place, ended: Ended) -> None:
        if ended.outcome == "done":
            key = _way_of(verb, place)
            with self._lock:
                before = self._seconds.get(key, ended.seconds)
                self._seconds[key] = 0.7 * before + 0.3 * ended.seconds


def run_round(
    place: Place,
    one: Round,
    folder: Path,
    durations: Durations,
    meanwhile: Callable[[], None],
    *,
    disturb: Callable[[], None] = lambda: None,
    start: Callable[[Place, Verb, Path], Process] = Process,
) -> Ended:
    """Run a verb, let its fate happen at its moment, and return how it ended.

    `meanwhile` is called while it runs, or while it is stopped.
    """
    process = start(place, one.verb, folder)
    writing = threading.Thread(target=meanwhile)
    writing.start()
    try:
        if one.fate != "end" and not _has_ended_by(
            process, one, durations.expected(one.verb, place)
        ):
            if one.fate == "stop":
                process.send(signal.SIGSTOP)
                time.sleep(STOPPED_SECONDS)
                _run_another(place, folder)
                process.send(signal.SIGCONT)
            elif one.fate == "disturb":
                disturb()
            else:
                process.send(signal.SIGKILL, tree=one.fate == "kill-tree")
    finally:
        writing.join()
    ended = process.end()
    durations.note(one.verb, place, ended)
    return ended


def _has_ended_by(process: Process, one: Round, seconds: float) -> bool:
    """Wait for the moment of a round; return whether its verb has ended by then."""
    if one.after_steps is None:
        return process.wait(one.moment * seconds)
    has_ended = process.wait_for_steps(one.after_steps)
    return has_ended or process.wait(one.moment * seconds * _STEP_SHARE)


def _run_another(place: Place, folder: Path) -> None:
    """Compact while another verb stands still; it takes over if it may."""
    inner = folder / "another"
    inner.mkdir(exist_ok=True)
    verb = Verb(name="compact", options={"min_files": 2, "target_file_bytes": 2**20})
    another = Process(place, verb, inner).end()
    if another.outcome == "defect":
        raise AssertionError(another.text)
