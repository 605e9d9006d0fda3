"""What a program above the operations decides about their runs: the service, for its jobs."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakehand.engine.runner_contract import CancelToken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class RunControl:
    """Holds for every run that an operation starts within `controlled`."""

    #: Cancels the tasks, or winds them down.
    cancel: CancelToken = field(default_factory=CancelToken)
    #: Runs whose process has ended, as the caller knows before their heartbeat is old.
    known_dead: frozenset[str] = frozenset()
    #: Recorded in the ledger of each run: which job it belongs to, for instance.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Called with the id of each run, once its ledger is written and before it writes a file.
    on_start: Callable[[str], None] | None = None


_current: ContextVar[RunControl | None] = ContextVar("run_control", default=None)


@contextmanager
def controlled(control: RunControl) -> Iterator[RunControl]:
    """Let `control` hold for all operations that this thread calls within the block."""
    token = _current.set(control)
    try:
        yield control
    finally:
        _current.reset(token)


def current_control() -> RunControl:
    """Return the control of this thread; without `controlled`, one that cancels nothing."""
    return _current.get() or RunControl()


def is_winding_down() -> bool:
    """Say whether no further work is to be started."""
    return current_control().cancel.is_winding_down
