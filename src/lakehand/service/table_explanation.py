"""Why a table is maintained or not: its policy, ratios, windows, budgets and waiting jobs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from lakehand.service.client_values import TableEntry, origins_of, read_snapshot
from lakehand.service.job_specs import table_policy
from lakehand.service.policies import find_matches
from lakehand.service.returns import raised_by
from lakehand.service.scores import MEASURES
from lakehand.service.store.records import FOREVER, format_time
from lakehand.service.triggers import changes_seen, next_window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakehand.model.snapshot import Snapshot
    from lakehand.service.client_values import JobEntry, SettingOrigin
    from lakehand.service.config import Policy, ServiceConfig
    from lakehand.service.returns import JobReturn
    from lakehand.service.store.budgets import Budget
    from lakehand.service.store.table_registry import RegisteredTable
    from lakehand.settings import Settings

#: What keeps jobs of a table from being queued.
Obstacle = Literal["disabled", "gone", "table_paused", "service_paused", "unreadable", "held"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """A number of a table against the threshold from which something is due."""

    #: What is counted.
    name: str
    #: What is due at a ratio of 1: `job`, or a step of `maintain`.
    of: str
    #: The number.
    value: float
    #: The threshold.
    threshold: float
    #: The setting or key of the policy that has the threshold.
    setting: str

    @property
    def ratio(self) -> float:
        """The number relative to its threshold; due at 1."""
        return self.value / self.threshold if self.threshold else float(self.value > 0)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": round(self.ratio, 4), "is_due": self.ratio >= 1}


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowState:
    """Whether jobs of the table may run now, and the next change of that."""

    #: Whether they may.
    is_open: bool
    #: When they may next; null if they may now, or never.
    opens_at: float | None
    #: When this or the next window closes; null: never.
    closes_at: float | None

    def to_json(self) -> dict[str, Any]:
        times = {"opens_at": self.opens_at, "closes_at": self.closes_at}
        known = {name: None if at is None else format_time(at) for name, at in times.items()}
        return {"is_open": self.is_open, **known}


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyChoice:
    """Which policy a table has, and why."""

    #: Its name.
    policy: str
    #: The pattern that decided; null: no pattern matches, so it is `default`.
    pattern: str | None
    #: Other patterns that match and say less, as `policy: pattern`.
    others: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Why a table is maintained or not."""

    #: The table.
    table: TableEntry
    #: Its policy, and why it is that one.
    choice: PolicyChoice
    #: What keeps jobs of the table from being queued, each with its reason.
    obstacles: tuple[tuple[Obstacle, str], ...]
    #: Numbers of the table against thresholds.
    ratios: tuple[Ratio, ...]
    #: When jobs may run.
    window: WindowState
    #: Budgets that limit the table today.
    budgets: tuple[Budget, ...]
    #: Its queued and running jobs, with what each waits for.
    jobs: tuple[JobEntry, ...]
    #: What its last jobs have cost and were worth, the newest first.
    returns: tuple[JobReturn, ...]
    #: By how much its thresholds are raised, because rewrites did not pay.
    raised: float
    #: Every setting, and where its value came from.
    settings: tuple[SettingOrigin, ...]
    #: Why the table could not be read; null if it was.
    unread: str | None

    @property
    def is_check_due(self) -> bool:
        """Whether the scheduler asks at its next look which steps are due."""
        return any(one.of == "job" and one.ratio >= 1 for one in self.ratios)

    @property
    def score(self) -> float | None:
        """Score of the last assessment: benefit divided by cost; null if there is none."""
        score = (self.table.table.summary or {}).get("score")
        return None if score is None else float(score)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What was due at the last assessment."""
        return tuple((self.table.table.summary or {}).get("reasons") or ())

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON document."""
        return {
            "table": self.table.to_json(),
            "policy": asdict(self.choice),
            "obstacles": [{"reason": kind, "details": text} for kind, text in self.obstacles],
            "is_check_due": self.is_check_due,
            "score": self.score,
            "reasons": list(self.reasons),
            "ratios": [one.to_json() for one in self.ratios],
            "window": self.window.to_json(),
            "budgets": [budget.to_json() for budget in self.budgets],
            "jobs": [entry.to_json() for entry in self.jobs],
            "returns": [one.to_json() for one in self.returns],
            "raised": self.raised,
            "settings": {
                one.name: {"value": one.value, "source": one.source} for one in self.settings
            },
            "unread": self.unread,
        }


def explain_table(
    config: ServiceConfig,
    entry: TableEntry,
    *,
    now: float,
    jobs: Sequence[JobEntry],
    budgets: Sequence[Budget] = (),
    returns: Sequence[JobReturn] = (),
    service_paused_by: str | None = None,
) -> Explanation:
    """Explain what is known of a table; its log is read, and no data file."""
    table = entry.table
    applied = table_policy(config, table)
    snapshot, unread = read_snapshot(config, table.url)
    settings = applied.settings({} if snapshot is None else snapshot.properties)
    ratios = list(job_ratios(table, applied.policy, now))
    raised = raised_by(returns)
    if snapshot is not None:
        ratios += step_ratios(snapshot, settings, raised)
    ratios += assessed_ratios(table)
    return Explanation(
        table=entry,
        choice=_choice(config, table),
        obstacles=tuple(_obstacles(entry, applied.policy, service_paused_by)),
        ratios=tuple(ratios),
        window=window_state(config, applied.policy, now),
        budgets=tuple(budgets),
        jobs=tuple(jobs),
        returns=tuple(returns),
        raised=raised,
        settings=origins_of(settings),
        unread=unread,
    )


def _choice(config: ServiceConfig, table: RegisteredTable) -> PolicyChoice:
    first, *others = find_matches(config.policies, table.url, table.name)
    return PolicyChoice(
        policy=first.policy.name,
        pattern=first.pattern,
        others=tuple(f"{one.policy.name}: {one.pattern}" for one in others),
    )


def _obstacles(
    entry: TableEntry, policy: Policy, service_paused_by: str | None
) -> Iterator[tuple[Obstacle, str]]:
    table = entry.table
    if table.gone_at is not None:
        yield "gone", f"its source {table.source} no longer finds it"
    if not policy.enabled:
        yield "disabled", f"its policy {policy.name} has enabled = false"
    if service_paused_by is not None:
        yield "service_paused", f"by {service_paused_by}"
    if entry.state == "paused":
        yield "table_paused", f"by {table.paused_by}"
    if table.last_error is not None:
        yield "unreadable", str(table.last_error.get("message"))
    for verb, error in entry.held.items():
        yield "held", f"{verb}: {error.get('message')}"


def job_ratios(table: RegisteredTable, policy: Policy, now: float) -> Iterator[Ratio]:
    """Return what the scheduler looks at to queue a job: the limits of `check_after`."""
    changes = changes_seen(table, table.version)
    after = policy.check_after
    if table.assessed_at is None:
        yield Ratio(name="never_maintained", of="job", value=1, threshold=1, setting="check_after")
        return
    limit = after.time.total_seconds()
    # Without a commit nothing is due, however long ago the last job was.
    seconds = now - table.assessed_at if changes.commits else 0.0
    values = {
        "commits": (changes.commits, after.commits),
        "bytes": (changes.bytes if changes.commits else 0, after.bytes),
        "time": (seconds, limit),
    }
    for name, (value, threshold) in values.items():
        setting = f"check_after.{name}"
        yield Ratio(name=name, of="job", value=value, threshold=threshold, setting=setting)


def step_ratios(snapshot: Snapshot, settings: Settings, raised: float = 1.0) -> Iterator[Ratio]:
    """Return what a job looks at to rewrite files or to write a checkpoint.

    The thresholds of a rewrite are those of the settings, times `raised`.
    """
    from lakehand.assess.inspection import highest_deleted_row_ratio, measure, most_small_files
    from lakehand.planning.policy import automatic_min_files

    is_given = settings.sources["min_files"] != "default"
    yield Ratio(
        name="small_files_of_a_partition",
        of="compact",
        value=most_small_files(snapshot, settings=settings),
        threshold=raised * automatic_min_files(settings),
        setting="min_files" if is_given else "automatic_min_files",
    )
    yield Ratio(
        name="deleted_rows_of_a_file",
        of="compact",
        value=highest_deleted_row_ratio(snapshot),
        threshold=raised * settings.deleted_row_ratio,
        setting="deleted_row_ratio",
    )
    yield Ratio(
        name="commits_since_checkpoint",
        of="checkpoint",
        value=measure(snapshot, settings=settings).commits_since_checkpoint,
        threshold=settings.checkpoint_interval,
        setting="checkpoint_interval",
    )


def assessed_ratios(table: RegisteredTable) -> Iterator[Ratio]:
    """Return the ratios of steps that only the last assessment of the scheduler knows."""
    steps = (table.summary or {}).get("steps") or {}
    for step in ("vacuum", "clean_logs"):
        ratio = (steps.get(step) or {}).get("ratio")
        if ratio is not None:
            (setting,) = MEASURES[step].values()
            yield Ratio(name="assessed", of=step, value=ratio, threshold=1.0, setting=setting)


def window_state(config: ServiceConfig, policy: Policy, now: float) -> WindowState:
    """Return whether jobs of a policy may run now, and when that changes."""
    # Whole microseconds: those of a time that is read back may differ in the last digits.
    moment = datetime.fromtimestamp(now, UTC).timestamp()
    opens_at, closes_at = next_window(config, policy, moment)
    is_open = opens_at <= moment
    is_never = opens_at >= FOREVER
    return WindowState(
        is_open=is_open,
        opens_at=None if is_open or is_never else opens_at,
        closes_at=closes_at,
    )
