"""What every operation on a table works with: how it was called, its run, and its tasks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypedDict

import pyarrow.compute as pc

from lakehand.engine import CancelToken, choose_engine, is_spark_asked_for, open_runner
from lakehand.engine.inline import HERE
from lakehand.engine.runner_contract import OnResult, Task, results_of
from lakehand.errors import CorruptFileError
from lakehand.formats.worker import FileCheckWorker, TaskLimits
from lakehand.model.batches import divide
from lakehand.observe import OnProgress, Progress, telling
from lakehand.observe.clock import Clock, Stopwatch, SystemClock
from lakehand.runs.control import current_control
from lakehand.runs.ledger import Heartbeat, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakehand.engine import Runner, TaskOutcome
    from lakehand.formats.base import FormatTable
    from lakehand.model.reports import EngineName
    from lakehand.model.snapshot import Snapshot
    from lakehand.model.work import DataFile
    from lakehand.settings import Settings

#: Tasks that read no more than this together run in this process, unless Spark runs them.
INLINE_BYTES = 64 * 2**20
#: A task gets files up to either of these: enough to be worth its start, little to do again.
_MOST_FILES, _MOST_BYTES = 64, 256 * 2**20
#: Number of largest files whose sizes are checked in storage before they start Spark.
_CHECKED_FILES = 16


class CallOptions(TypedDict, total=False):
    """Options that every operation takes."""

    #: A Spark session to run tasks on.
    spark: Any
    dry_run: bool
    on_progress: OnProgress | None
    clock: Clock | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of an operation: on which table, and with which settings and options."""

    operation: str
    table: FormatTable
    settings: Settings
    #: Measures the call from its beginning, and has its clock.
    watch: Stopwatch = field(default_factory=lambda: Stopwatch(SystemClock()))
    spark: Any = None
    dry_run: bool = False
    on_progress: OnProgress | None = None

    @classmethod
    def begin(
        cls,
        operation: str,
        table: FormatTable,
        settings: Settings,
        options: CallOptions,
    ) -> Self:
        """Return a call whose time is measured from now on."""
        return cls(
            operation=operation,
            table=table,
            settings=settings,
            watch=Stopwatch(options.get("clock") or SystemClock()),
            spark=options.get("spark"),
            dry_run=options.get("dry_run", False),
            on_progress=options.get("on_progress"),
        )

    @property
    def clock(self) -> Clock:
        return self.watch.clock

    @property
    def limits(self) -> TaskLimits:
        return TaskLimits.of(self.settings)

    def tell(self, progress: Progress) -> None:
        """Say how far the operation is; what the caller's callback raises stops it."""
        url = self.table.store.url
        telling(self.on_progress, operation=self.operation, table=url)(progress)

    def runner(
        self,
        *,
        read_bytes: int,
        moved_bytes: int = 0,
        snapshot: Snapshot | None = None,
        inline_bytes: int = 0,
    ) -> Runner:
        """Return the runner for tasks that read and move so much, to be used in `with`.

        With a `snapshot`, CorruptFileError where Spark would be started only because the size of
        one of its files is wrong.
        """
        sizes = {"read_bytes": read_bytes, "moved_bytes": moved_bytes}
        if snapshot is not None and self._starts_spark(**sizes):
            _require_true_sizes(self.table, snapshot)
        return open_runner(
            self.settings,
            **sizes,
            spark=self.spark,
            store=self.table.store,
            inline_bytes=inline_bytes,
        )

    def _starts_spark(self, *, read_bytes: int, moved_bytes: int) -> bool:
        """Say whether Spark is chosen by the size of the work alone."""
        if is_spark_asked_for(self.settings, spark=self.spark):
            return False
        sizes = {"read_bytes": read_bytes, "moved_bytes": moved_bytes}
        return choose_engine(self.settings, **sizes, spark=self.spark) == "spark"


def _require_true_sizes(table: FormatTable, snapshot: Snapshot) -> None:
    count = min(_CHECKED_FILES, snapshot.file_count)
    order = pc.select_k_unstable(snapshot.files, k=count, sort_keys=[("bytes", "descending")])
    worker = table.worker(snapshot)
    if not isinstance(worker, FileCheckWorker):
        return
    for finding in worker.check_files(snapshot.files.take(order)):
        if finding.name == "wrong_size":
            raise CorruptFileError(
                finding.message,
                table=table.store.url,
                path=finding.path,
                hint="`lakehand verify` lists every file whose size is wrong",
            )


@contextmanager
def open_run(
    call: Call,
    snapshot: Snapshot,
    plan: Mapping[str, Any],
    *,
    inputs: Iterable[str] = (),
    is_adoptable: bool = True,
) -> Iterator[tuple[Run, CancelToken]]:
    """Start a run, keep its heartbeat, and finish it at the end of the block.

    What it wrote and did not commit is deleted then; what may have been committed is kept. The
    token is cancelled when another run has taken over. The arguments are those of `Run.start`.
    """
    control = current_control()
    run = Run.start(
        call.table.store,
        plan,
        snapshot=snapshot,
        inputs=inputs,
        is_adoptable=is_adoptable,
        labels=control.labels,
        clock=call.clock,
    )
    cancel = control.cancel
    try:
        if control.on_start is not None:
            control.on_start(run.id)
        with Heartbeat(run, interval=call.settings.heartbeat_interval, on_stop=cancel.cancel):
            yield run, cancel
    finally:
        run.finish()


def open_tasks(
    call: Call,
    *,
    read_bytes: int,
    moved_bytes: int = 0,
    snapshot: Snapshot | None = None,
    run: Run | None = None,
    cancel: CancelToken | None = None,
    inline_bytes: int = 0,
) -> Tasks:
    """Return what runs tasks that read and move so much, to be used in `with`: see `Call.runner`.

    `run` is whose names they write under; None if they write nothing that lasts.
    """
    runner = call.runner(
        read_bytes=read_bytes,
        moved_bytes=moved_bytes,
        snapshot=snapshot,
        inline_bytes=inline_bytes,
    )
    return Tasks(call, runner, run=run, cancel=cancel)


class Tasks:
    """Runs the tasks of an operation, and says how far they are."""

    def __init__(
        self,
        call: Call,
        runner: Runner,
        *,
        run: Run | None = None,
        cancel: CancelToken | None = None,
        inline_bytes: int = 0,
    ) -> None:
        """Take a runner. Tasks on files of no more than `inline_bytes` together need none."""
        self.call = call
        self.runner = runner
        self.cancel = cancel or CancelToken()
        #: Where tasks ran; None if there were none so far.
        self.ran_on: EngineName | None = None
        self._run = run
        self._inline_bytes = inline_bytes

    def __enter__(self) -> Self:
        self.runner.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def outcomes(
        self,
        task: Task,
        payloads: Sequence[Mapping[str, Any]],
        *,
        on_result: OnResult | None = None,
        may_wind_down: bool = False,
    ) -> list[TaskOutcome]:
        """Run `task` on all payloads; a failure is an outcome. See `Runner.run`."""
        if not payloads:
            return []
        runner: Runner = HERE if _are_small(payloads, self._inline_bytes) else self.runner
        if self.ran_on != "spark":
            self.ran_on = runner.engine
        return runner.run(
            task,
            payloads,
            run=self._run,
            on_result=on_result,
            cancel=self.cancel,
            may_wind_down=may_wind_down,
        )

    def results(
        self, phase: str, task: Task, payloads: Sequence[Mapping[str, Any]]
    ) -> list[Mapping[str, Any]]:
        """Run `task` on all payloads and count the tasks; the first failure is raised."""
        done = 0

        def count(_outcome: TaskOutcome) -> None:
            nonlocal done
            done += 1
            self.call.tell(Progress(phase=phase, done=done, total=len(payloads), unit="tasks"))

        return results_of(self.outcomes(task, payloads, on_result=count))

    def over_files(
        self, phase: str, task: Task, portions: Sequence[Sequence[DataFile]]
    ) -> list[TaskOutcome]:
        """Run `task` on the `files` of each portion and count the files; a failure is an outcome.

        Raising from the caller's callback stops the tasks.
        """
        counts = [len(portion) for portion in portions]
        sizes = [sum(file.bytes for file in portion) for portion in portions]
        total, total_bytes = sum(counts), sum(sizes)
        done = done_bytes = 0

        def count(outcome: TaskOutcome) -> None:
            nonlocal done, done_bytes
            done += counts[outcome.index]
            done_bytes += sizes[outcome.index]
            progress = Progress(
                phase=phase,
                done=done,
                total=total,
                unit="files",
                done_bytes=done_bytes,
                total_bytes=total_bytes,
            )
            self.call.tell(progress)

        payloads = [{"files": [asdict(file) for file in portion]} for portion in portions]
        return self.outcomes(task, payloads, on_result=count)


def _are_small(payloads: Sequence[Mapping[str, Any]], most_bytes: int) -> bool:
    """Say whether tasks read so little; of those that read no files it is not known."""
    if not most_bytes:
        return False
    sizes = [int(file["bytes"]) for payload in payloads for file in payload.get("files", ())]
    return bool(sizes) and sum(sizes) <= most_bytes


def divide_files(
    files: Iterable[DataFile],
    *,
    most_bytes: int = _MOST_BYTES,
    most_files: int | None = _MOST_FILES,
) -> list[list[DataFile]]:
    """Divide files among tasks, the largest first; a file is never divided."""
    ordered = sorted(files, key=lambda file: file.bytes, reverse=True)
    return list(
        divide(
            ordered, size_of=lambda file: file.bytes, most_bytes=most_bytes, most_items=most_files
        )
    )
