"""One verb in a process of its own, which is killed, stopped, or short of something."""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import signal
import threading
import time
import traceback
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakehand
from campaign.rounds import BLOCK_IDS, BLOCK_ROWS, Round, Verb
from campaign.shapes import extra_columns, extra_fields, partition_of
from campaign.timed_kill import kill_after
from campaign.warm import warm_process
from lakehand.errors import LakehandError
from lakehand.hot import HotTable
from lakehand.observe.steps import Step, listen
from lakehand.sink import TableSink
from lakehand.storage import open_store
from lakehand.storage.retry import NO_RETRY, RetryPolicy
from lakehand.testing import Fault, FaultKind, FaultStore
from support.compactions import tasks_inline
from support.later_vacuums import vacuum_later

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from campaign.shapes import Shape

SINK = "campaign"
#: Short, so that a verb may take over from one that was stopped for a second.
RUNS = {"heartbeat_interval": "100ms", "takeover_after": "1s"}
#: Of remote stores: a kill need not wait until a request is made again.
_QUICK_RETRIES = {"max_retries": 6, "retry_base_delay": "5ms", "retry_max_delay": "50ms"}
END_SECONDS = 180.0
STOPPED_SECONDS = 1.5
#: From one named step to the next, as a share of the time of a verb.
_STEP_SHARE = 0.03


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
    #: Variables of the process, such as those by which it gets another clock.
    environment: tuple[tuple[str, str], ...] = ()
    #: What is unusual about its rows.
    shape: Shape | None = None

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
    cpu_seconds: float = 0.0
    #: How many named steps it came to, and the last of them.
    steps: int = 0
    step: str | None = None
    #: What was killed beneath it, while it went on: executors and Python workers; or the driver.
    lost: tuple[str, ...] = ()


def schema_of(shape: Shape | None = None) -> pa.Schema:
    """Return the columns of a table."""
    return pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("part", pa.string()),
            pa.field("value", pa.int64()),
            pa.field("note", pa.string()),
            *extra_fields(shape),
        ]
    )


def rows_of(
    blocks: tuple[int, ...] | list[int], value: int | None = None, *, shape: Shape | None = None
) -> pa.Table:
    """Return the rows of blocks, whose values follow from their ids unless one is given."""
    ids = [block * BLOCK_IDS + number for block in blocks for number in range(BLOCK_ROWS)]
    return pa.table(
        {
            "id": ids,
            "part": [partition_of(shape, i) for i in ids],
            "value": [i % 7 if value is None else value for i in ids],
            "note": [None if i % 5 == 0 else f"note {i % 11}" for i in ids],
            **extra_columns(shape, ids),
        },
        schema=schema_of(shape),
    )


def condition_of(blocks: tuple[int, ...]) -> str:
    spans = [f"(id >= {b * BLOCK_IDS} AND id < {(b + 1) * BLOCK_IDS})" for b in blocks]
    return " OR ".join(spans)


@dataclass(frozen=True, kw_only=True)
class Death:
    """When the kernel kills a process: after some processor time, from its start or from a step."""

    cpu_seconds: float
    after_steps: int = 0


class Process:
    """The process of one verb."""

    def __init__(
        self, place: Place, verb: Verb, folder: Path, *, death: Death | None = None
    ) -> None:
        self._answer, self._steps = folder / "answer.json", folder / "step"
        for path in (self._answer, self._steps):
            path.unlink(missing_ok=True)
        arguments = (place, verb, str(self._answer), str(self._steps), death)
        self._process = warm_process(place.environment).fork(_perform, *arguments)
        self._started = time.monotonic()

    @property
    def pid(self) -> int:
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
            if self.wait(0.002):
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
        steps, step = self._step()
        if self._answer.exists():
            told = json.loads(self._answer.read_text())
            return Ended(**told, seconds=seconds, steps=steps, step=step)
        if self._process.exitcode == -signal.SIGKILL:
            return Ended(outcome="killed", seconds=seconds, step=step)
        return Ended(outcome="defect", text=f"exit {self._process.exitcode}", step=step)


def _perform(place: Place, verb: Verb, answer: str, steps: str, death: Death | None) -> None:
    os.setpgid(0, 0)
    steps_file = os.open(steps, os.O_CREAT | os.O_WRONLY)
    numbers = itertools.count(1)

    def note(step: Step) -> None:
        number = next(numbers)
        _note(steps_file, f"{number} {step.value}")
        if death is not None and number == death.after_steps:
            kill_after(death.cpu_seconds)

    listen(note)
    if death is not None and death.after_steps == 0:
        kill_after(death.cpu_seconds)
    if place.memory is not None:
        from campaign.power import remember_syncs

        remember_syncs(Path(place.memory), Path(place.uri))
    faults = _draw_faults(place)
    with nullcontext() if place.has_workers else tasks_inline():
        _limit(place.limits)
        told = outcome_of(partial(_call, place, verb, faults))
        _limit(dict.fromkeys(place.limits, -1))
    told["cpu_seconds"] = time.process_time()
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
            skip=chance.randrange(chance.choice([8, 40, 120])),
            times=chance.choice([1, 1, 2, 5]),
            key=chance.choice(["*", "*", "*.parquet", "_delta_log/*", "_lakehand/*"]),
        )
        for _ in range(chance.choice([1, 6, 20, 60]))
    ]


def _draw_retries(place: Place) -> RetryPolicy:
    """Return how often the store makes a request again: never in one call of three."""
    if random.Random(f"retries-{place.fault_seed}").random() < 1 / 3:
        return NO_RETRY
    delays = {"base_delay": timedelta(milliseconds=1), "max_delay": timedelta(milliseconds=4)}
    return RetryPolicy(max_retries=8, **delays)


def _call(place: Place, verb: Verb, faults: list[Fault]) -> None:
    if faults:
        store = open_store(place.uri, place.storage or None)
        faulty = FaultStore(store, faults, retry=_draw_retries(place))
        table = lakehand.open_table(faulty, engine="local", **RUNS)
    else:
        retries = _QUICK_RETRIES if place.storage else {}
        table = place.open(engine="local", **RUNS, **retries)
    call_verb(table, place, verb)


def call_verb(table: lakehand.Table, place: Place, verb: Verb) -> None:
    _VERBS[verb.name](table, place, verb)


def _upsert(table: lakehand.Table, place: Place, verb: Verb) -> None:
    rows = rows_of(verb.blocks, verb.value, shape=place.shape)
    table.upsert(rows, key=["id"], **verb.options)


def _merge(table: lakehand.Table, place: Place, verb: Verb) -> None:
    rows = rows_of(verb.blocks, verb.value, shape=place.shape)
    merge = table.merge(rows, on=["id"], **verb.options)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _hot(_table: lakehand.Table, place: Place, verb: Verb) -> None:
    """Change each block in a hot table, note how many are acknowledged, and flush."""
    log = hot_log(place)
    with HotTable(place.uri, log=log, key=["id"]) as table:
        for number, block in enumerate(verb.blocks, 1):
            table.upsert(rows_of([block], verb.value, shape=place.shape))
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


def _append(table: lakehand.Table, place: Place, verb: Verb) -> None:
    """Append rows under an epoch, so that a call that was killed may be made again."""
    rows = rows_of(verb.blocks, shape=place.shape)
    table.append(rows, writer_id=f"appending-{verb.blocks[0]}", epoch=1)


def _sink(_table: lakehand.Table, place: Place, verb: Verb) -> None:
    """Write each block as an epoch of its own; those that are committed are not written again."""
    with TableSink(place.uri, writer_id=SINK, storage_options=place.storage or None) as sink:
        for block in verb.blocks:
            sink.begin_epoch(block + 1)
            for batch in rows_of([block], shape=place.shape).to_batches(max_chunksize=15):
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
        self._cpu_seconds: dict[tuple[str, bool, bool], float] = {}
        self._steps: dict[str, int] = {}
        self._lock = threading.Lock()

    def expected(self, verb: Verb, place: Place) -> float:
        return self._seconds.get(_way_of(verb, place), 0.3 if _is_inline(place) else 1.5)

    def draw_death(self, one: Round, place: Place) -> Death:
        """Return when the process of a round is to be killed, in place of by the clock."""
        cpu_seconds = one.moment * self._cpu_seconds.get(_way_of(one.verb, place), 0.2)
        if one.after_steps is None:
            return Death(cpu_seconds=cpu_seconds)
        count = 1 + (one.after_steps - 1) % self.expected_steps(one.verb)
        return Death(cpu_seconds=cpu_seconds * _STEP_SHARE, after_steps=count)

    def expected_steps(self, verb: Verb) -> int:
        """Return how many steps this verb had when it last had any."""
        return self._steps.get(verb.name, 8)

    def note(self, verb: Verb, place: Place, ended: Ended) -> None:
        if ended.outcome == "done":
            key = _way_of(verb, place)
            with self._lock:
                if ended.steps:
                    self._steps[verb.name] = ended.steps
                before = self._seconds.get(key, ended.seconds)
                self._seconds[key] = 0.7 * before + 0.3 * ended.seconds
                used = self._cpu_seconds.get(key, ended.cpu_seconds)
                self._cpu_seconds[key] = 0.7 * used + 0.3 * ended.cpu_seconds


def run_round(
    place: Place,
    one: Round,
    folder: Path,
    durations: Durations,
    meanwhile: Callable[[], None],
    *,
    disturb: Callable[[], None] = lambda: None,
    start: Callable[..., Process] = Process,
) -> Ended:
    """Run a verb, let its fate happen at its moment, and return how it ended.

    `meanwhile` is called while it runs, or while it is stopped.
    """
    # Not with worker processes, which are killed together with that of the verb or go on.
    is_alone = (start is Process or place.memory is not None) and not place.has_workers
    is_timed = is_alone and one.fate == "kill"
    death = durations.draw_death(one, place) if is_timed else None
    more = {} if death is None else {"death": death}
    process = start(place, one.verb, folder, **more)
    writing = threading.Thread(target=meanwhile)
    writing.start()
    try:
        if (
            death is None
            and one.fate != "end"
            and not _has_ended_by(process, one, place, durations)
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


def _has_ended_by(process: Process, one: Round, place: Place, durations: Durations) -> bool:
    """Wait for the moment of a round; return whether its verb has ended by then."""
    seconds = one.moment * durations.expected(one.verb, place)
    if one.after_steps is None:
        return process.wait(seconds)
    count = 1 + (one.after_steps - 1) % durations.expected_steps(one.verb)
    return process.wait_for_steps(count) or process.wait(seconds * _STEP_SHARE)


def _run_another(place: Place, folder: Path) -> None:
    """Compact while another verb stands still; it takes over if it may."""
    inner = folder / "another"
    inner.mkdir(exist_ok=True)
    verb = Verb(name="compact", options={"min_files": 2, "target_file_bytes": 2**20})
    another = Process(place, verb, inner).end()
    if another.outcome == "defect":
        raise AssertionError(another.text)
