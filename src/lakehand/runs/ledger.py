"""The ledger of a run: what it may have written, and that it is alive."""

from __future__ import annotations

import json
import logging
import os
import platform
import threading
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from lakehand._version import __version__
from lakehand.errors import ObjectNotFoundError, RunError, RunTakenError, StorageError
from lakehand.observe import get_logger, log_event
from lakehand.observe.clock import Clock, SystemClock
from lakehand.observe.steps import Step, reached
from lakehand.runs import ledger_records as records
from lakehand.runs.leftovers import delete_leftovers, recorded_files, stems_of
from lakehand.storage.local_files import sync_directory, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta
    from pathlib import Path
    from types import TracebackType

    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import Group, GroupResult
    from lakehand.storage import Store


logger = get_logger(__name__)


class Heartbeat:
    """Beats every `interval` inside `with`; calls `on_stop` once if the run is to stop.

    It is to stop when another run has dropped its ledger. A beat that fails is only logged: whether
    the run may commit is decided by its fate. The first sign of life of a run is its start.
    """

    def __init__(
        self, run: Run, *, interval: timedelta, on_stop: Callable[[], None] | None = None
    ) -> None:
        self._run = run
        self._interval_seconds = interval.total_seconds()
        self._on_stop = on_stop or (lambda: None)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_until_end, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _beat_until_end(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            if self._must_stop():
                self._on_stop()
                return

    def _must_stop(self) -> bool:
        try:
            self._run.require_ledger()
            self._run.beat()
        except RunTakenError:
            return True
        except StorageError as error:
            log_event(
                logger, logging.WARNING, "heartbeat_failed", "%s", error.message, run=self._run.id
            )
        return False


RUNS_DIRECTORY = "_lakehand/runs"
_STRAGGLERS = "stragglers"
_DIRECTORIES = ("stems", "groups", "results", "fates", "settled")
#: Names of more files than these are kept out of what every other run reads.
_MOST_INPUTS = 1_000
T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class _Decisions:
    """What the owner of a run has decided: no other run can, without ending the run."""

    fates: list[records.Fate] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)
    #: False once a put failed: only the store knows what it has.
    is_known: bool = True

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Take note that something is put, which may fail."""
        was_known, self.is_known = self.is_known, False
        yield
        self.is_known = was_known


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run as its owner and its tasks see it. Picklable: a place in a store.

    What the owner knows, and what was listed, only saves requests.
    """

    store: Store
    id: str
    clock: Clock = field(default_factory=SystemClock)
    #: Not known unless this process started the run.
    _own: _Decisions = field(
        default_factory=lambda: _Decisions(is_known=False), compare=False, repr=False
    )
    #: Names of all that is in the ledger, where they were listed already: see `as_listed`.
    listed: tuple[str, ...] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def start(
        cls,
        store: Store,
        plan: Mapping[str, Any],
        *,
        snapshot: Snapshot | None = None,
        inputs: Iterable[str] = (),
        is_adoptable: bool = True,
        labels: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Write the ledger of a new run, which is about to replace `inputs`.

        `plan` says in short what the run is about; the groups themselves come with their results.
        `snapshot` is what it reads, which vacuum keeps for it; where groups were planned on it,
        another run may adopt them, should this die. `labels` are for people who read the ledger.
        """
        clock = clock or SystemClock()
        run = cls(store=store, id=records.new_run_id(clock), clock=clock, _own=_Decisions())
        state = records.table_state(snapshot) if snapshot is not None and is_adoptable else None
        version = snapshot.version if snapshot is not None else None
        known: dict[str, Any] = {"table_state": state, "base_version": version, "plan": plan}
        if labels:
            known["labels"] = dict(labels)
        paths = list(inputs)
        if len(paths) > _MOST_INPUTS:
            run.publish_inputs(paths)
        else:
            known["inputs"] = paths
        # On the condition that tasks and commits rely on: a store without it is refused here.
        records.put_first(store, run.key("run.json"), _to_bytes({**_identity(run), **known}))
        reached(Step.RUN_STARTED)
        return run

    def publish_inputs(self, paths: Iterable[str]) -> None:
        """Let other runs know which files this one is about to replace."""
        self.store.put(self.key(records.Inputs.NAME), _to_bytes({"paths": list(paths)}))

    @classmethod
    def open(cls, store: Store, run_id: str, *, clock: Clock | None = None) -> Self:
        """Return a run that exists; RunError if its ledger is gone."""
        run = cls(store=store, id=run_id, clock=clock or SystemClock())
        run.require_ledger()
        return run

    def key(self, *parts: str) -> str:
        return "/".join((RUNS_DIRECTORY, self.id, *parts))

    def identity(self) -> records.Identity | None:
        """Return who started the run, when and where; None if the run is over."""
        return self._read(partial(records.read_record, records.Identity), "run.json")

    def require_readable(self) -> None:
        """Raise RunError if anything in the ledger is not what this lakehand writes there."""
        self.last_sign()
        self.reservations()
        self.groups()
        self.results()
        self.unsettled()

    def require_ledger(self) -> None:
        name = "run.json"
        exists = self.store.exists(self.key(name)) if self.listed is None else name in self.listed
        if not exists:
            raise RunTakenError(
                f"run {self.id} is over: its ledger is gone, another run has dropped it",
                hint="start a new run; the outputs of this one are no longer its own",
                run_id=self.id,
            )

    # Signs of life.

    def beat(self) -> None:
        """Say that the run is alive."""
        self.store.put(self.key("heartbeat.json"), _to_bytes({"at": self._now()}))

    def last_sign(self) -> datetime | None:
        """Return when the run last said that it is alive; None if it is over."""
        identity = self.identity()
        if identity is None:
            return None
        sign = self._read(partial(records.read_record, records.Sign), "heartbeat.json")
        return sign.at if sign else identity.started_at

    def expect_stragglers(self) -> None:
        """Note that tasks which were given up may still write: their names outlive the run."""
        self.store.put(self.key(_STRAGGLERS), b"")

    # What tasks write.

    def reserve(self, group: int, attempt: str | int = 0, *, directory: str | None = None) -> str:
        """Return a name stem that no other attempt uses, noted in the ledger before any byte.

        `directory` is where the files will lie; without it a sweep has to search the whole table.
        """
        stem = f"lakehand-{self.id}-{group:05d}-{attempt}-{uuid.uuid4().hex[:12]}"
        reservation = records.Reservation(
            stem=stem, group=group, attempt=str(attempt), directory=directory
        )
        self.store.put(self.key("stems", f"{stem}.json"), _to_bytes(asdict(reservation)))
        reached(Step.TASK_RESERVED)
        return stem

    def record(self, result: GroupResult, *, group: Group | None = None) -> GroupResult:
        """Put the result of a group and return the one that counts: the first one recorded.

        The outputs of a later attempt stay uncommitted and are deleted when the run ends. Without
        its `group` the result can be committed by this run only.
        """
        name = records.numbered_name(result.group)
        if group is not None:
            self.store.put(self.key("groups", name), _to_bytes(group.to_json()))
        key, own = self.key("results", name), _to_bytes(result.to_json())
        found = records.put_first(self.store, key, own)
        reached(Step.TASK_RECORDED)
        return result if found == own else records.parse_result(key, found)

    def result(self, group: int) -> GroupResult | None:
        """Return the result of a group, or None if no attempt has recorded one."""
        return self._read(records.parse_result, "results", records.numbered_name(group))

    def results(self, *, known: Collection[int] = ()) -> list[GroupResult]:
        """Return the results recorded so far, but for groups in `known`."""
        skip = {records.numbered_name(group) for group in known}
        return self._read_all(records.parse_result, "results", skip=skip)

    def recorded_at(self, group: int) -> datetime | None:
        """Return when the result of a group was recorded, by the clock of the store."""
        try:
            return self.store.head(self.key("results", records.numbered_name(group))).modified_at
        except ObjectNotFoundError:
            return None

    def groups(self) -> dict[int, Group]:
        """Return the groups of recorded results, by number."""
        found = self._read_all(records.parse_group, "groups")
        return {group.id: group for group in found}

    def reservations(self) -> list[records.Reservation]:
        return self._read_all(partial(records.parse_reservation, self.id), "stems")

    def has_repeated_attempts(self) -> bool:
        """Say whether the same was tried twice, as names tell that differ at their ends alone."""
        listed = (info.key for info in self.store.list(self.key("stems")))
        tried = [key.rpartition("-")[0] for key in listed]
        return len(set(tried)) < len(tried)

    # Who may commit or delete.

    def fates(self) -> list[records.Fate]:
        """Return the fates decided so far, in the order of their batches."""
        return self._read_all(records.parse_fate, "fates")

    def decide_fate(self, results: Iterable[GroupResult], *, base_version: int) -> records.Fate:
        """Claim the right to commit `results`; RunTakenError if another run has taken over.

        To be called just before the first attempt. The commit must carry the fate's token.
        """
        outputs = [file.path for result in results for file in result.outputs]
        fate, _ = self._end_or_commit("committing", outputs=outputs, base_version=base_version)
        reached(Step.RUN_COMMITTING)
        return fate

    def settle(self, fate: records.Fate, *, version: int | None) -> None:
        """Record the outcome of a commit: its version, or None if it is proved lost."""
        outcome = {"batch": fate.batch, "version": version}
        with self._own.deciding():
            key = self.key("settled", records.numbered_name(fate.batch))
            self.store.put(key, _to_bytes(outcome))
            self._own.settled.add(fate.batch)

    def unsettled(self) -> list[records.Fate]:
        """Return the commits without a recorded outcome."""
        outcomes = self._read_all(records.parse_settled, "settled")
        settled = {outcome.batch for outcome in outcomes}
        fates = (fate for fate in self.fates() if fate.kind == "committing")
        return [fate for fate in fates if fate.batch not in settled]

    def close(self) -> Run:
        """Declare that the run commits nothing more; return it `as_listed` after that."""
        _, run = self._end_or_commit("closed")
        return run

    def _end_or_commit(
        self,
        kind: records.FateKind,
        *,
        outputs: Sequence[str] = (),
        base_version: int | None = None,
    ) -> tuple[records.Fate, Run]:
        batch = len(self._open_fates())
        wanted = records.Fate(
            kind=kind,
            batch=batch,
            by=self.id,
            at=self.clock.now(),
            token=f"lakehand-{self.id}-{batch}" if kind == "committing" else None,
            base_version=base_version,
            outputs=tuple(outputs),
        )
        with self._own.deciding():
            decided = records.put_fate(self.store, self.fate_key(batch), wanted)
            if decided != wanted:
                raise self._taken(decided)
            # `drop` deletes run.json before the fates. A fate that was put only because
            # the taker's was dropped before is found out here.
            run = self.as_listed() if wanted.ends_the_run else self
            try:
                run.require_ledger()
            except RunTakenError:
                self.discard([self.fate_key(batch)])
                _remove_empty_directories(self.store.local_path(self.key()))
                raise
            self._own.fates.append(decided)
        return decided, run

    def _open_fates(self) -> list[records.Fate]:
        """Return the fates so far; what another run has decided since is found by the next put."""
        if self._own.is_known:
            fates = self._own.fates
        else:
            self.require_ledger()
            fates = self.fates()
        if fates and fates[-1].ends_the_run:
            raise self._taken(fates[-1])
        return fates

    def _taken(self, fate: records.Fate) -> RunError:
        if fate.by == self.id:
            message = f"run {self.id} has decided on batch {fate.batch} already: {fate.kind}"
            return RunError(message, run_id=self.id)
        return RunTakenError(
            f"run {self.id} was silent for too long and was taken over by {fate.by}",
            hint="nothing of it was lost: the other run adopts or deletes its outputs",
            run_id=self.id,
        )

    def fate_key(self, batch: int) -> str:
        return self.key("fates", records.numbered_name(batch))

    def _now(self) -> str:
        return self.clock.now().isoformat()

    def _read(self, parse: Callable[[str, bytes], T], *parts: str) -> T | None:
        key = self.key(*parts)
        try:
            return parse(key, self.store.get(key))
        except ObjectNotFoundError:
            return None

    def _read_all(
        self, parse: Callable[[str, bytes], T], directory: str, *, skip: Collection[str] = ()
    ) -> list[T]:
        names = [name for name in self._names(directory) if name not in skip]
        keys = [self.key(directory, name) for name in names]
        try:
            items = self.store.get_many(keys)
        except ObjectNotFoundError:
            # Another run is dropping this ledger at this moment.
            found = (self._read(parse, directory, name) for name in names)
            return [item for item in found if item is not None]
        return [parse(key, item) for key, item in zip(keys, items, strict=True)]

    def _names(self, directory: str) -> list[str]:
        if self.listed is None:
            return [info.key.rsplit("/", 1)[-1] for info in self.store.list(self.key(directory))]
        prefix = f"{directory}/"
        return [name.removeprefix(prefix) for name in self.listed if name.startswith(prefix)]

    # The end.

    def finish(self) -> None:
        """End the run: delete what it wrote and did not commit, then drop its ledger.

        Outputs of a batch that was about to be committed are never touched here, and the ledger
        stays while it is not known whether that commit landed. If another run has taken over,
        everything is left to it; if the store fails, to the next sweep.
        """
        try:
            run = self.close()
            reached(Step.RUN_CLOSED)
            delete_leftovers(run, keep=run.claimed_files())
            reached(Step.RUN_CLEANED)
            if run.is_settled():
                run.drop(run.all_but_awaited())
        except RunTakenError as error:
            log_event(logger, logging.INFO, "run_left_to_taker", "%s", error.message, run=self.id)
        except (RunError, StorageError) as error:
            message = "Run %s is left to the next sweep: %s"
            log_event(logger, logging.WARNING, "run_not_finished", message, self.id, error.message)

    def is_settled(self) -> bool:
        """Say whether the outcome of every commit is known."""
        if not self._own.is_known:
            return not self.unsettled()
        commits = {fate.batch for fate in self._own.fates if fate.kind == "committing"}
        return commits <= self._own.settled

    def all_but_awaited(self) -> list[str]:
        """Return the entries, but for names under which stragglers may still write, if any."""
        entries = self.entries()
        if _STRAGGLERS not in entries:
            return entries
        # Those of files that may be in the table must go: a sweep would take them for garbage.
        reported = {f"stems/{stem}.json" for stem in stems_of(self, self._reported_files())}
        return [name for name in entries if name in reported or not name.startswith("stems/")]

    def _reported_files(self) -> set[str]:
        return self.claimed_files() | recorded_files(self)

    def claimed_files(self) -> set[str]:
        """Return the files that commits of the run refer to, if they landed."""
        fates = self._own.fates if self._own.is_known else self.fates()
        return {path for fate in fates for path in fate.outputs}

    def as_listed(self) -> Run:
        """Return the run with the names of all that is in its ledger now: one request for all.

        What is added later is not read by it, and not deleted either.
        """
        return replace(self, listed=tuple(self.entries()))

    def entries(self) -> list[str]:
        """Return the names of all that is in the ledger."""
        if self.listed is not None:
            return list(self.listed)
        prefix = self.key("")
        return [info.key.removeprefix(prefix) for info in self.store.list(self.key())]

    def drop(self, entries: Sequence[str] | None = None) -> None:
        """Delete the ledger, in an order that is safe to be interrupted at any point.

        Reservations and results go first: without them no run deletes a file. Fates go last: while
        one exists, no other run can claim the run's outputs. Only `entries` are deleted where they
        are given: what a late task added since then stays known to the next sweep.
        """
        prefix = self.key("")
        names = self.entries() if entries is None else entries
        outputs, *stages = records.in_order_of_deletion(names)
        self.discard([prefix + name for name in outputs])
        self.sync_records()
        for stage in stages:
            self.discard([prefix + name for name in stage])
        for directory in (*_DIRECTORIES, ""):
            self.store.delete_unfinished(self.key(directory), names=("",))
        _remove_empty_directories(self.store.local_path(self.key()))

    def sync_records(self) -> None:
        """Make the deletion of reservations and results survive a power cut, on local disk.

        Results without the fate that says that they are committed look like files to delete.
        """
        for name in ("stems", "results"):
            directory = self.store.local_path(self.key(name))
            if directory is None:
                return
            changed = directory if directory.is_dir() else directory.parent
            with translated("delete", str(changed)), suppress(FileNotFoundError):
                sync_directory(str(changed))

    def discard(self, keys: Iterable[str]) -> None:
        """Delete objects that nothing refers to; StorageError if one of them stays."""
        failures = self.store.delete(keys)
        if failures:
            raise failures[0].error


def _remove_empty_directories(root: Path | None) -> None:
    """Remove what a dropped ledger leaves on a local disk, where directories are things."""
    if root is None:
        return
    for directory in [*(path for path in root.glob("*") if path.is_dir()), root]:
        with suppress(OSError):
            directory.rmdir()


def list_runs(store: Store) -> list[str]:
    """Return the ids of all runs that have a ledger, finished remains included."""
    directories, _ = store.list_directory(RUNS_DIRECTORY)
    return [directory.rstrip("/").rsplit("/", 1)[-1] for directory in directories]


def _identity(run: Run) -> dict[str, Any]:
    return {
        "run": run.id,
        "started_at": run.clock.now().isoformat(),
        "host": platform.node(),
        "pid": os.getpid(),
        "lakehand": __version__,
    }


def _to_bytes(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
