"""What a ledger holds, as values: reservations, results, and the fate of each commit batch.

A fate is one object per commit batch. It decides who may commit, adopt or delete its outputs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from lakehand import errors
from lakehand.model.documents import DocumentError, parse_object, read_value
from lakehand.model.work import Change, Group, GroupResult, Receipt
from lakehand.observe import get_logger, log_event
from lakehand.observe.steps import Step, reached

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.snapshot import Snapshot
    from lakehand.observe.clock import Clock
    from lakehand.runs.ledger import Run
    from lakehand.storage import Store


def new_run_id(clock: Clock) -> str:
    return f"{clock.now():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:12]}"


def started_at(run_id: str) -> datetime | None:
    """Return when a run got its name; None if that is no name of a run."""
    try:
        return datetime.fromisoformat(run_id.partition("-")[0] + "Z")
    except ValueError:
        return None


def numbered_name(number: int) -> str:
    """Return under which name the ledger holds what concerns a group or a batch."""
    return f"{number:06d}.json"


def in_order_of_deletion(entries: Sequence[str]) -> Iterator[list[str]]:
    """Yield the entries of a ledger in the stages in which they may be deleted."""
    first = [name for name in entries if _names_outputs(name)]
    yield first + [name for name in entries if _is_about_the_run(name)]
    yield [name for name in entries if _says_that_it_runs(name)]
    yield [name for name in entries if _is_fate(name)]


def _names_outputs(name: str) -> bool:
    return name.startswith(("stems/", "results/"))


def _is_fate(name: str) -> bool:
    return name.startswith("fates/")


def _says_that_it_runs(name: str) -> bool:
    return name == "run.json"


def _is_about_the_run(name: str) -> bool:
    return not (_names_outputs(name) or _is_fate(name) or _says_that_it_runs(name))


T = TypeVar("T")

#: How often an object is put that a store without an answer does not have.
_TRIES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Names that one attempt at one group may use: every file starts with `stem`."""

    stem: str
    group: int
    attempt: str
    #: Directory of the files, relative to the table's root; None: it may be any.
    directory: str | None
    #: Files by other names, where the table's format chooses them: known once they are written.
    files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Who started a run, when and where, and what it is about."""

    run: str
    started_at: datetime
    host: str | None = None
    pid: int | None = None
    #: Version of lakehand.
    lakehand: str | None = None
    #: Fingerprint of the table without its files; None: no run may adopt its results.
    table_state: str | None = None
    #: Version that the run reads.
    base_version: int | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)
    #: Files that the run is about to replace, unless `Inputs` says otherwise.
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Files that a run is about to replace, where they are many or have changed since its start."""

    NAME: ClassVar[str] = "inputs.json"

    paths: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """A sign of life."""

    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """The outcome of a commit: its version, or None if it is proved lost."""

    batch: int
    version: int | None


def read_record(kind: type[T], key: str, text: bytes, *, required: Collection[str] = ()) -> T:
    """Return what an object of a ledger says; RunError if it is not of that kind."""
    try:
        return read_value(kind, parse_object(text), required=required)
    except DocumentError as error:
        raise unreadable(key, str(error)) from error


def unreadable(key: str, reason: str) -> errors.RunError:
    """Return the error for an object of a ledger that is not what lakehand writes there."""
    return errors.RunError(
        f"{key} cannot be read: {reason}",
        hint="another version of lakehand may have written it; nothing of that run is touched; once"
        " no process works on the table, delete the run's directory, and vacuum deletes its files",
    )


def require_paths(key: str, paths: Iterable[str]) -> None:
    """Raise RunError if an object of a ledger names a path that no run writes to."""
    for path in paths:
        if not path or ".." in path.split("/"):
            raise unreadable(key, f"{path!r} is no path in the table")


def require_number(key: str, number: int) -> None:
    """Raise RunError if an object of a ledger says another number than its name does.

    The files of one group would replace another's.
    """
    if key.rpartition("/")[2] != numbered_name(number):
        raise unreadable(key, f"it is about number {number}")


def parse_group(key: str, text: bytes) -> Group:
    """Return which files a group is made of; RunError if it cannot be read."""
    group = read_record(Group, key, text)
    require_number(key, group.id)
    return group


def parse_result(key: str, text: bytes) -> GroupResult:
    """Return the result of a group; RunError if it cannot be read."""
    result = read_record(GroupResult, key, text, required=("outputs", "proof", "failure"))
    require_number(key, result.group)
    require_paths(key, (file.path for file in result.outputs))
    return result


def parse_settled(key: str, text: bytes) -> Settled:
    """Return the outcome of a commit; RunError if it cannot be read."""
    settled = read_record(Settled, key, text)
    require_number(key, settled.batch)
    return settled


def parse_reservation(run_id: str, key: str, text: bytes) -> Reservation:
    """Return a reservation of a run; RunError if it cannot be read, or is of another run."""
    found = read_record(Reservation, key, text)
    if not found.stem.startswith(f"lakehand-{run_id}-"):
        # Files that start like this would be deleted as those of the run.
        raise unreadable(key, f"{found.stem!r} is no name stem of the run")
    require_paths(key, [*([found.directory] if found.directory else []), *found.files])
    return found


def put_first(store: Store, key: str, data: bytes) -> bytes:
    """Put an object unless it exists, and return the stored one; a lost one is put again."""
    failure: errors.StorageError | None = None
    for _ in range(_TRIES):
        try:
            store.put_if_absent(key, data)
        except (errors.ObjectExistsError, errors.StoreUnreachableError) as error:
            failure = error
        else:
            return data
        try:
            return store.get(key)
        except errors.ObjectNotFoundError:
            continue
    raise errors.RunError(f"{key} of {store.url} could not be recorded") from failure


def table_state(snapshot: Snapshot) -> str:
    """Return a fingerprint of all but the files: equal where results of one fit the other."""
    columns = [str(field) for field in snapshot.schema]
    facts = [
        snapshot.table_id,
        snapshot.rules,
        columns,
        list(snapshot.partition_columns),
        sorted(snapshot.properties.items()),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


# Fates of commit batches

FateKind = Literal["committing", "taken", "closed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fate:
    """What becomes of a batch, and who decided it."""

    kind: FateKind
    batch: int
    #: Run that wrote this fate.
    by: str
    #: When it was written.
    at: datetime
    #: Token of the commit; None unless `committing`.
    token: str | None = None
    #: Version above which the commit may have landed; None unless `committing`.
    base_version: int | None = None
    #: Paths that the commit refers to, if it landed.
    outputs: tuple[str, ...] = ()

    @property
    def ends_the_run(self) -> bool:
        return self.kind != "committing"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "at": self.at.isoformat()}


def parse_fate(key: str, text: bytes) -> Fate:
    """Return the fate that is stored under `key`; RunError if it cannot be read.

    One that is about to be committed must name its token and outputs: without them it would be
    unknown which files belong to a version.
    """
    fate = read_record(Fate, key, text, required=("outputs",))
    if fate.kind == "committing" and not (fate.token and fate.base_version is not None):
        raise unreadable(key, "a commit without its token or its version")
    require_number(key, fate.batch)
    require_paths(key, fate.outputs)
    return fate


def read_fate(store: Store, key: str) -> Fate | None:
    """Return the fate under `key`, or None if it is undecided."""
    try:
        return parse_fate(key, store.get(key))
    except errors.ObjectNotFoundError:
        return None


def put_fate(store: Store, key: str, fate: Fate) -> Fate:
    """Put `fate` unless one exists, and return the one that counts."""
    try:
        store.put_if_absent(key, json.dumps(fate.to_json()).encode())
    except errors.ObjectExistsError:
        return read_fate(store, key) or fate_vanished(fate)
    except errors.StoreUnreachableError:
        # The put may have landed although its answer was lost; only the object itself can tell.
        winner = read_fate(store, key)
        if winner is None:
            raise
        return winner
    return fate


def fate_vanished(fate: Fate) -> Fate:
    """Return an end by another run: a fate disappears only when its run's ledger is dropped."""
    return Fate(kind="taken", batch=fate.batch, by="a run that has finished", at=fate.at)


logger = get_logger(__name__)


def commit_results(
    run: Run, table: FormatTable, change: Change, *, results: Sequence[GroupResult]
) -> Receipt:
    """Commit `change`, which is made of `results`, unless another run has taken over.

    Outputs are deleted only when it is proved that no version refers to them: those of groups that
    the commit left out, and all of them after a lost race. Any other error keeps every file.
    """
    fate = run.decide_fate(results, base_version=change.base_version)
    try:
        receipt = table.commit(change, token=fate.token or "")
    except (errors.CommitConflictError, errors.ReplanError):
        _clean_up(run, fate, fate.outputs, version=None)
        raise
    reached(Step.RUN_COMMITTED)
    _clean_up(run, fate, _outputs_of(results, receipt.dropped), version=receipt.version)
    return receipt


def _clean_up(run: Run, fate: Fate, lost: Collection[str], *, version: int | None) -> None:
    """Delete outputs that are proved lost and settle the batch.

    A store that fails here does not change the outcome of the commit; vacuum finds the files.
    """
    try:
        run.discard(lost)
        run.settle(fate, version=version)
        reached(Step.RUN_SETTLED)
    except errors.StorageError as error:
        message = "Run %s could not clean up after its commit: %s"
        log_event(logger, logging.WARNING, "run_not_settled", message, run.id, error.message)


def _outputs_of(results: Sequence[GroupResult], groups: Collection[int]) -> list[str]:
    return [file.path for result in results if result.group in groups for file in result.outputs]
