"""What the maintenance of a table is worth, what it costs, and how early its job starts.

All functions are pure: numbers of a table in, values out. The scheduler calls them with the stored
summary of a table, a simulator with a modelled one::

    score = score_table(numbers, limits, reads_per_day=24.0, calibration={"compact": 1.3})
    if score.is_due:
        rank_at = queued_at - head_start(score.score, importance=1.0)

A step is *due* if the ratio of a measured value to its limit is at least 1. Its *benefit* is the
processor time that readers save per day, its *cost* the processor time of the step, and the *score*
of a table is the benefit of all due steps divided by their cost. No job waits for ever, whatever
its score: see `OVERDUE_SECONDS`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from lakehand.model.maintenance import MAINTENANCE_STEPS
from lakehand.model.quantities import format_bytes, format_count, format_duration
from lakehand.planning import plan, policy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from lakehand.settings import Settings

#: Seconds by which the score and the importance of a job move it at most.
MOST_HEAD_START = 5 * 86_400.0
#: Hours of head start for each doubling of the importance, or of 1 + 10 * score.
_HOURS_OF_DOUBLING, _SCORE_UNITS = 12.0, 10.0
#: A job that could have started for this long goes before all that could for less.
OVERDUE_SECONDS = 9 * 3600.0
_HOUR, _DAY, _GIB = 3600.0, 86_400.0, 2**30
#: Reads per day of a table whose reads are not counted.
READS_PER_DAY = 24.0
#: Opening one more file, mostly the latency of an object store.
OPEN_SECONDS = 0.02
#: Reading rows, and replaying one commit when a table is opened.
SCAN_BYTES_PER_SECOND = 100 * 2**20
REPLAY_SECONDS = 0.005
#: Opening the table for a step, whatever it has to do then.
START_SECONDS = 0.12
#: Listing or deleting one object, and writing one entry of a checkpoint.
OBJECT_SECONDS, ENTRY_SECONDS = 0.0005, 0.000_005
#: Tables of fewer files are seldom worth a rewrite: Apache Amoro's number.
_FEW_FILES = 12
#: No table counts for less than this because it is tiny.
_LEAST_WEIGHT = 0.02
#: A ratio that makes a job urgent.
_URGENT_RATIO = 10.0
#: Weight of the newest forecast in a calibration, and the factor by which one may be wrong at most.
_NEWEST_WEIGHT, _MOST_FACTOR = 0.3, 20.0
#: Of a table with fewer forecasts the factor of all tables is used as well.
_ENOUGH_FORECASTS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TableNumbers:
    """What is measured of a table: from its log alone."""

    file_count: int = 0
    total_bytes: int = 0
    #: Small files in partitions with enough of them for an automatic compaction, and their bytes.
    small_file_count: int = 0
    small_bytes: int = 0
    #: Of these bytes, those in row groups large enough to be copied; others are encoded again.
    copied_bytes: int = 0
    #: Files that compacting these would save.
    excess_file_count: int = 0
    #: Small files of the partition that has most.
    most_in_partition: int = 0
    #: Files with too many deleted rows, all bytes in them, and the bytes of the deleted rows.
    worn_file_count: int = 0
    worn_bytes: int = 0
    dead_bytes: int = 0
    #: Highest fraction of deleted rows in a file.
    most_deleted_ratio: float = 0.0
    #: Files far above the target size, and their bytes.
    oversized_file_count: int = 0
    oversized_bytes: int = 0
    commits_since_checkpoint: int = 0
    #: Files and bytes that were removed from the table since the last vacuum.
    removed_file_count: int = 0
    removed_bytes: int = 0
    #: Since the last vacuum and the last cleanup of the log; None: there was none.
    seconds_since_vacuum: float | None = None
    seconds_since_cleanup: float | None = None
    commits_since_cleanup: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The settings that decide what is due."""

    target_file_bytes: int = 128 * 2**20
    min_files: int = 10
    deleted_row_ratio: float = 0.05
    checkpoint_interval: int = 10
    #: How long after a vacuum, or a cleanup of the log, the next one is due.
    vacuum_seconds: float = _DAY
    #: By how much the table's thresholds are raised, because its rewrites did not pay.
    raised: float = 1.0

    @classmethod
    def from_settings(cls, settings: Settings, *, raised: float = 1.0) -> Self:
        interval = settings.vacuum_interval
        return cls(
            target_file_bytes=settings.target_file_bytes,
            min_files=policy.automatic_min_files(settings),
            deleted_row_ratio=settings.deleted_row_ratio,
            checkpoint_interval=settings.checkpoint_interval,
            vacuum_seconds=_DAY if interval is None else max(interval.total_seconds(), 1.0),
            raised=raised,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """What is paid: turns freed storage into processor time."""

    core_hour: float = 0.04
    gib_month: float = 0.023

    @property
    def seconds_per_gib_day(self) -> float:
        """Processor time that costs as much as a GiB for a day."""
        return self.gib_month / 30 / max(self.core_hour, 1e-9) * _HOUR


#: What each step is measured by, and the setting that has the threshold.
MEASURES: Mapping[str, Mapping[str, str]] = {
    "compact": {
        "small_files_of_a_partition": "min_files",
        "deleted_rows_of_a_file": "deleted_row_ratio",
        "oversized_files": "target_file_bytes",
    },
    "vacuum": {"seconds_since_vacuum": "vacuum_interval"},
    "checkpoint": {"commits_since_checkpoint": "checkpoint_interval"},
    "clean_logs": {"seconds_since_cleanup": "vacuum_interval"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """One number of a table against the threshold from which its step is due."""

    #: The number; None: there is none yet.
    value: float | None
    threshold: float
    #: Number divided by threshold; other than that where the step is due, or not, whatever it is.
    ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepScore:
    """One step of maintenance: whether it is due, and what it is worth."""

    step: str
    #: By the names of `MEASURES`.
    measures: Mapping[str, Measure]
    reasons: tuple[str, ...] = ()
    #: Processor time that readers save per day.
    benefit_seconds: float = 0.0
    #: Processor time of the step, calibrated.
    core_seconds: float = 0.0
    #: The same as the model says, before calibration: what forecasts are compared by.
    forecast_core_seconds: float = 0.0
    #: Bytes that it rewrites or frees, and files that it saves or deletes.
    bytes: int = 0
    files: int = 0

    @property
    def ratio(self) -> float:
        """The highest ratio of its measures; due from 1."""
        return max((measure.ratio for measure in self.measures.values()), default=0.0)

    @property
    def is_due(self) -> bool:
        return self.ratio >= 1.0

    @property
    def score(self) -> float:
        return self.benefit_seconds / max(self.core_seconds, 1e-3)

    def shown(self) -> dict[str, Any]:
        """Return what explains whether the step is due."""
        return {
            "ratio": self.ratio,
            "score": self.score,
            "reasons": list(self.reasons),
            "benefit_seconds": self.benefit_seconds,
            "core_seconds": self.core_seconds,
            "measures": {name: asdict(measure) for name, measure in self.measures.items()},
        }

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), **self.shown()}


@dataclass(frozen=True, kw_only=True, slots=True)
class TableScore:
    """All steps of a table, and the score of a job that takes the due ones."""

    steps: tuple[StepScore, ...] = ()
    #: Why a job is to run though no number tells that a step is due.
    notes: tuple[str, ...] = ()

    @property
    def due(self) -> tuple[StepScore, ...]:
        return tuple(step for step in self.steps if step.is_due)

    @property
    def is_due(self) -> bool:
        return bool(self.notes) or any(step.is_due for step in self.steps)

    @property
    def ratio(self) -> float:
        """The highest ratio of all steps."""
        return max((step.ratio for step in self.steps), default=0.0)

    @property
    def benefit_seconds(self) -> float:
        return sum(step.benefit_seconds for step in self.due)

    @property
    def core_seconds(self) -> float:
        return sum(step.core_seconds for step in self.due)

    @property
    def score(self) -> float:
        """Benefit of the due steps divided by their cost; 0 if none is due."""
        return self.benefit_seconds / max(self.core_seconds, 1e-3)

    @property
    def urgency(self) -> int:
        """1 if a value is ten times its limit, else 2."""
        return 1 if self.ratio >= _URGENT_RATIO else 2

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each due step is due, the most valuable step first."""
        ordered = sorted(self.due, key=lambda step: -step.benefit_seconds)
        return (*(reason for step in ordered for reason in step.reasons), *self.notes)

    def expected(self) -> dict[str, Any]:
        """Return what a job stores of its forecast."""
        due = self.due
        if not due:
            return {}
        return {
            "benefit_seconds": self.benefit_seconds,
            "core_seconds": self.core_seconds,
            "bytes": sum(step.bytes for step in due if step.step == "compact"),
            "ratio": self.ratio,
            "steps": {step.step: step.to_json() for step in due},
        }


def score_table(
    numbers: TableNumbers,
    limits: Limits,
    *,
    steps: Collection[str] = MAINTENANCE_STEPS,
    reads_per_day: float = READS_PER_DAY,
    calibration: Mapping[str, float] | None = None,
    lost_share: float = 0.0,
    prices: Prices | None = None,
) -> TableScore:
    """Score the steps of a table.

    `calibration` has by step the factor of actual to forecast processor time, `lost_share` says
    which part of its rewrites the table lost to concurrent writers.
    """
    factors = calibration or {}
    scoring: dict[str, Callable[[], StepScore]] = {
        "compact": lambda: _score_compaction(numbers, limits, reads_per_day, lost_share),
        "vacuum": lambda: _score_vacuum(numbers, limits, prices or Prices()),
        "checkpoint": lambda: _score_checkpoint(numbers, limits, reads_per_day),
        "clean_logs": lambda: _score_cleanup(numbers, limits, reads_per_day),
    }
    return TableScore(
        steps=tuple(
            _calibrated(score(), factors.get(step, 1.0))
            for step, score in scoring.items()
            if step in steps
        )
    )


def _calibrated(step: StepScore, factor: float) -> StepScore:
    forecast = step.core_seconds
    return replace(step, core_seconds=forecast * factor, forecast_core_seconds=forecast)


def tiny_weight(numbers: TableNumbers, limits: Limits) -> float:
    """Return how much a table counts: less than 1 if it is small, as in Apache Amoro.

    >>> tiny_weight(TableNumbers(file_count=6, total_bytes=64 * 2**20), Limits())
    0.25
    """
    files = min(1.0, numbers.file_count / _FEW_FILES)
    return max(_LEAST_WEIGHT, files * min(1.0, numbers.total_bytes / limits.target_file_bytes))


def _score_compaction(
    numbers: TableNumbers, limits: Limits, reads: float, lost_share: float
) -> StepScore:
    saved = numbers.excess_file_count * OPEN_SECONDS + numbers.dead_bytes / SCAN_BYTES_PER_SECOND
    files = numbers.small_file_count + numbers.worn_file_count + numbers.oversized_file_count
    rewritten = numbers.small_bytes + numbers.worn_bytes + numbers.oversized_bytes
    encoded = rewritten - numbers.copied_bytes
    groups = max(1.0, rewritten / limits.target_file_bytes)
    seconds = (
        START_SECONDS
        + plan.SECONDS_PER_FILE * files
        + plan.SECONDS_PER_GROUP * groups
        + numbers.copied_bytes / plan.COPY_BYTES_PER_SECOND
        + encoded / plan.RECODE_READ_BYTES_PER_SECOND
        + max(0, encoded - numbers.dead_bytes) / plan.RECODE_WRITE_BYTES_PER_SECOND
    )
    return StepScore(
        step="compact",
        measures=_compaction_measures(numbers, limits),
        reasons=tuple(_compaction_reasons(numbers, limits)),
        benefit_seconds=reads * saved * tiny_weight(numbers, limits),
        # Work that writers undo is done again.
        core_seconds=seconds / (1.0 - min(max(lost_share, 0.0), 0.95)),
        bytes=rewritten,
        files=numbers.excess_file_count,
    )


def _compaction_measures(numbers: TableNumbers, limits: Limits) -> dict[str, Measure]:
    """Return each number against its threshold, as raised; a ratio of 0: nothing to rewrite."""
    raised = max(limits.raised, 1.0)
    files = numbers.most_in_partition if numbers.excess_file_count else 0
    least = max(limits.min_files, 1)
    deleted, most = numbers.most_deleted_ratio, max(limits.deleted_row_ratio, 1e-6)
    is_worn, oversized = numbers.worn_file_count > 0, numbers.oversized_file_count
    return {
        "small_files_of_a_partition": Measure(
            value=numbers.most_in_partition, threshold=least * raised, ratio=files / least / raised
        ),
        "deleted_rows_of_a_file": Measure(
            value=deleted,
            threshold=most * raised,
            ratio=max(1.0, deleted / most) / raised if is_worn else 0.0,
        ),
        "oversized_files": Measure(
            value=oversized, threshold=raised, ratio=min(oversized, 1) / raised
        ),
    }


def _compaction_reasons(numbers: TableNumbers, limits: Limits) -> Iterator[str]:
    if numbers.excess_file_count:
        files = format_count(numbers.small_file_count, "small file")
        saved = f"compaction would save {numbers.excess_file_count:,}"
        yield f"{files}, {saved} (due from {limits.min_files} in a partition)"
    if numbers.worn_file_count:
        files = format_count(numbers.worn_file_count, "file")
        yield f"{files} with over {limits.deleted_row_ratio:.0%} deleted rows"
    if numbers.oversized_file_count:
        yield f"{format_count(numbers.oversized_file_count, 'file')} far above the target size"


def _score_vacuum(numbers: TableNumbers, limits: Limits, prices: Prices) -> StepScore:
    since = numbers.seconds_since_vacuum
    if since is None:
        ratio, reason = 1.0, "not vacuumed yet"
    elif numbers.removed_file_count:
        ratio = since / limits.vacuum_seconds
        removed = format_count(numbers.removed_file_count, "file")
        size = format_bytes(numbers.removed_bytes)
        reason = f"{removed} ({size}) removed since the vacuum {_ago(since)}"
    else:
        ratio, reason = 0.0, "no file was removed since the last vacuum"
    objects = numbers.file_count + 2 * numbers.removed_file_count
    return StepScore(
        step="vacuum",
        measures={
            "seconds_since_vacuum": Measure(
                value=since, threshold=limits.vacuum_seconds, ratio=ratio
            )
        },
        reasons=(reason,),
        benefit_seconds=numbers.removed_bytes / _GIB * prices.seconds_per_gib_day,
        core_seconds=START_SECONDS + objects * OBJECT_SECONDS,
        bytes=numbers.removed_bytes,
        files=numbers.removed_file_count,
    )


def _score_checkpoint(numbers: TableNumbers, limits: Limits, reads: float) -> StepScore:
    commits = numbers.commits_since_checkpoint
    interval = max(limits.checkpoint_interval, 1)
    return StepScore(
        step="checkpoint",
        measures={
            "commits_since_checkpoint": Measure(
                value=commits, threshold=interval, ratio=commits / interval
            )
        },
        reasons=(f"{format_count(commits, 'commit')} to replay; due every {interval}",),
        benefit_seconds=reads * commits * REPLAY_SECONDS,
        core_seconds=START_SECONDS + numbers.file_count * ENTRY_SECONDS,
        files=commits,
    )


def _score_cleanup(numbers: TableNumbers, limits: Limits, reads: float) -> StepScore:
    since, commits = numbers.seconds_since_cleanup, numbers.commits_since_cleanup
    if since is None:
        ratio, reason = 1.0, "the log was not cleaned yet"
    else:
        ratio = since / limits.vacuum_seconds if commits else 0.0
        written = format_count(commits, "commit")
        reason = f"{written} since the log was cleaned {_ago(since)}"
    return StepScore(
        step="clean_logs",
        measures={
            "seconds_since_cleanup": Measure(
                value=since, threshold=limits.vacuum_seconds, ratio=ratio
            )
        },
        reasons=(reason,),
        benefit_seconds=reads * commits * OBJECT_SECONDS,
        core_seconds=START_SECONDS + commits * OBJECT_SECONDS,
        files=commits,
    )


def _ago(seconds: float) -> str:
    return f"{format_duration(timedelta(seconds=seconds))} ago"


def head_start(score: float = 0.0, *, importance: float = 1.0) -> float:
    """Return by how many seconds a job goes before others: at most `MOST_HEAD_START`.

    Twelve hours for each doubling of the importance, or of 1 + 10 * score.

    >>> [head_start(score) / 3600 for score in (0.0, 0.1, 0.7)], head_start(importance=0.5) / 3600
    ([0.0, 12.0, 36.0], -12.0)
    """
    by_importance = math.log2(importance) if importance > 0 else -math.inf
    doublings = by_importance + math.log2(1.0 + _SCORE_UNITS * max(score, 0.0))
    return max(-MOST_HEAD_START, min(MOST_HEAD_START, _HOUR * _HOURS_OF_DOUBLING * doublings))


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """How much longer than forecast a step takes, smoothed over its last runs."""

    #: Actual divided by forecast processor time.
    factor: float = 1.0
    #: Smoothed relative error of the forecasts: 0.3 is 30 %.
    error: float = 0.0
    #: Number of forecasts so far.
    count: int = 0

    def after(self, *, forecast: float, actual: float) -> Calibration:
        """Return the calibration after one more run; the newest counts for 30 %.

        `forecast` is that of the model, before calibration. Ratios are averaged as logarithms: half
        and double cancel out.

        >>> Calibration().after(forecast=1.0, actual=2.0).factor
        2.0
        """
        if forecast <= 0 or actual <= 0:
            return self
        ratio = min(max(actual / forecast, 1 / _MOST_FACTOR), _MOST_FACTOR)
        error = abs(forecast * self.factor - actual) / actual
        if not self.count:
            return Calibration(factor=ratio, error=error, count=1)
        return Calibration(
            factor=self.factor ** (1 - _NEWEST_WEIGHT) * ratio**_NEWEST_WEIGHT,
            error=self.error * (1 - _NEWEST_WEIGHT) + error * _NEWEST_WEIGHT,
            count=self.count + 1,
        )


def calibrated_factor(own: Calibration | None, all_tables: Calibration | None) -> float:
    """Return the factor of a step: of the table itself, and as long as it knows few, of all."""
    common = 1.0 if all_tables is None or not all_tables.count else all_tables.factor
    if own is None or not own.count:
        return common
    share = min(1.0, own.count / _ENOUGH_FORECASTS)
    factor: float = own.factor**share * common ** (1.0 - share)
    return factor
