"""Looks at tables: one listing each, and what has changed is applied to the stored summary.

No table is read in this process. Where new commits do not tell all, another process reads the table
as a whole, and the table is looked at again when that is done.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import NotATableError, TableError, ValidationError
from lakehand.formats.optional import SupportsPolling, SupportsSummaries
from lakehand.formats.registry import load_format
from lakehand.service.job_specs import storage_options, table_policy
from lakehand.service.returns import raised_by, read_returns
from lakehand.service.scores import Limits, Prices, TableScore, score_table
from lakehand.service.store.summary_store import SavedSummary, SummaryStore, is_measured
from lakehand.service.table_summaries import Assessment, assess_summary
from lakehand.service.triggers import Changes, changes_seen, find_trigger
from lakehand.storage import open_store

if TYPE_CHECKING:
    from lakehand.formats.base import Format
    from lakehand.model.table_summary import LogLook, TableSummary
    from lakehand.service.config import ServiceConfig
    from lakehand.service.policies import TablePolicy
    from lakehand.service.store.database import Database
    from lakehand.service.store.summary_store import StoredSummary
    from lakehand.service.store.table_registry import RegisteredTable
    from lakehand.service.table_reader import BackgroundReader
    from lakehand.settings import Settings
    from lakehand.storage import Store

#: Why a job runs without a score.
_UNSCORED = "not assessed: the run finds out what is due"
_CLUSTERED = "clustered: the run measures how well"


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What a look at a table found, and what is due by it."""

    version: int
    applied: TablePolicy
    changes: Changes
    #: Why the table is to be maintained now, if something is due; None: it is too early to ask.
    trigger: str | None
    #: What is due; None: it was not looked up, or is not known yet.
    score: TableScore | None = None
    #: A new summary to store.
    saved: SavedSummary | None = None
    #: Whether the table is being read as a whole, and decided on later.
    is_pending: bool = False

    @property
    def is_due(self) -> bool:
        """Whether a job is to be queued: also where what is due is not known."""
        return self.trigger is not None and self.score is not None and self.score.is_due


class Assessor:
    """Looks at tables. It may be used by several threads."""

    def __init__(
        self, config: ServiceConfig, database: Database, *, reader: BackgroundReader | None = None
    ) -> None:
        self._config = config
        self._database = database
        self._summaries = SummaryStore(database)
        self._reader = reader
        self._settings: dict[tuple[str, str], Settings] = {}

    def apply(self, config: ServiceConfig) -> None:
        """Go on with another configuration."""
        self._config = config
        self._settings = {}

    def save(self, looks: list[Look]) -> None:
        """Store the new summaries of some looks."""
        self._summaries.save_all([look.saved for look in looks if look.saved is not None])

    def look(self, table: RegisteredTable, now: float) -> Look:
        """Look whether a table has changed, and what is due."""
        applied = table_policy(self._config, table)
        table_format = load_format(table.format or "delta")
        store = open_store(table.url, storage_options(self._config, table.url))
        if not isinstance(table_format, SupportsSummaries):
            version = _latest_version(table_format, store, table)
            return _unscored(applied, *_decide(table, applied, version, now))
        seen = table_format.look(store, known=table.version)
        if seen is None and table.version is not None:
            # The version that is known is not there: it was a wrong one, or of an earlier table.
            seen = table_format.look(store)
        if seen is None:
            raise NotATableError(f"there is no table at {table.url}", table=table.url)
        changes, trigger = _decide(table, applied, seen.version, now)
        known = table.summary or {}
        is_same = (known.get("version"), known.get("mark")) == (seen.version, seen.mark)
        if not applied.policy.enabled or (is_same and trigger is None):
            return Look(version=seen.version, applied=applied, changes=changes, trigger=trigger)
        look = Look(version=seen.version, applied=applied, changes=changes, trigger=trigger)
        try:
            return self._assess(table, look, seen, table_format, store, now)
        except (TableError, ValidationError) as error:
            # The run fails by it as well, and says so; what is scheduled runs all the more.
            why = f"not assessed: {error.message}"
            return _unscored(applied, changes, trigger, why=why)

    def _assess(
        self,
        table: RegisteredTable,
        look: Look,
        seen: LogLook,
        table_format: SupportsSummaries,
        store: Store,
        now: float,
    ) -> Look:
        stored = self._summaries.get(table.id)
        settings = self.settings(look.applied)
        summary = table_format.update_summary(store, seen, stored.summary)
        if summary is not None:
            return self._scored(
                table, look, stored, summary, assess_summary(summary, settings), now
            )
        if look.trigger is None:
            return look
        if self._is_recent(stored, look, now):
            if stored.summary is not None and stored.assessment is not None:
                assessment = Assessment.from_json(stored.assessment)
                return self._scored(table, look, stored, stored.summary, assessment, now)
            return _unscored(look.applied, look.changes, look.trigger)
        if self._reader is None:
            return _unscored(look.applied, look.changes, look.trigger)
        self._reader.request(table.id, self._spec(table, look.applied))
        return replace(look, is_pending=True)

    def _is_recent(self, stored: StoredSummary, look: Look, now: float) -> bool:
        """Say whether the table was just read as a whole, or could not be.

        A table that is written to all the time is never read at its newest version.
        """
        if stored.summary is None or stored.summary.mark:
            return False
        after = look.applied.policy.check_after.time.total_seconds()
        return stored.summary.version >= look.version or 0 <= now - stored.saved_at < after

    def _spec(self, table: RegisteredTable, applied: TablePolicy) -> dict[str, Any]:
        """Return what the process is told that reads the table."""
        return {
            "url": table.url,
            "format": table.format or "delta",
            "storage_options": dict(storage_options(self._config, table.url) or {}),
            "settings": dict(applied.overrides),
            "policy_settings": dict(applied.policy.settings),
        }

    def _prices(self) -> Prices:
        costs = self._config.costs
        return Prices(core_hour=costs.core_hour, gib_month=costs.gib_month)

    def _raised(self, table_id: int, look: Look) -> float:
        """Return by how much thresholds are raised, because rewrites of the table did not pay."""
        if look.trigger is None:
            return 1.0
        importance = look.applied.policy.importance
        costs = self._config.costs
        return raised_by(read_returns(self._database, table_id, costs, importance=importance))

    def settings(self, applied: TablePolicy) -> Settings:
        """Return the settings of a policy and overrides, which are the same for many tables."""
        key = (applied.policy.name, json.dumps(dict(applied.overrides), sort_keys=True))
        if key not in self._settings:
            self._settings[key] = applied.settings()
        return self._settings[key]

    def _scored(
        self,
        table: RegisteredTable,
        look: Look,
        stored: StoredSummary,
        summary: TableSummary,
        assessment: Assessment,
        now: float,
    ) -> Look:
        policy = look.applied.policy
        numbers = stored.since(assessment.numbers, summary, now)
        limits = Limits.from_settings(
            self.settings(look.applied).with_properties(summary.properties),
            raised=self._raised(table.id, look),
        )
        score = score_table(
            numbers,
            limits,
            steps=policy.steps,
            calibration=stored.factors,
            lost_share=stored.lost_share,
            prices=self._prices(),
        )
        if assessment.is_clustered and "cluster" in policy.steps:
            score = replace(score, notes=(_CLUSTERED,))
        is_curve = is_measured(table.summary, now)
        shown = {
            "version": look.version,
            "mark": summary.mark,
            **assessment.shown,
            "removed_bytes": numbers.removed_bytes,
            "ratio": score.ratio,
            "raised": limits.raised,
            "score": score.score,
            "reasons": list(score.reasons),
            "steps": {step.step: step.shown() for step in score.steps},
            "due_at": _due_at(stored, numbers.removed_file_count, limits),
            "measured_at": now if is_curve else (table.summary or {}).get("measured_at", now),
        }
        saved = SavedSummary(
            table_id=table.id,
            summary=summary,
            shown=shown,
            health_score=assessment.health_score,
            assessment=None if summary.mark else assessment.to_json(),
            is_measured=is_curve,
        )
        return replace(look, score=score, saved=saved)


def _due_at(stored: StoredSummary, removed: int, limits: Limits) -> float | None:
    """Return when a vacuum is due, though nothing changes until then."""
    if stored.vacuumed_at is None or not removed:
        return None
    return stored.vacuumed_at + limits.vacuum_seconds


def _decide(
    table: RegisteredTable, applied: TablePolicy, version: int, now: float
) -> tuple[Changes, str | None]:
    changes = changes_seen(table, version)
    return changes, find_trigger(table, applied.policy, changes, now)


def _unscored(
    applied: TablePolicy, changes: Changes, trigger: str | None, *, why: str = _UNSCORED
) -> Look:
    """Return a look at a table of which the run has to find out what is due."""
    version = changes.version
    assert version is not None  # noqa: S101  it was just looked up
    score = None if trigger is None else TableScore(notes=(why,))
    return Look(version=version, applied=applied, changes=changes, trigger=trigger, score=score)


def _latest_version(table_format: Format, store: Store, table: RegisteredTable) -> int:
    if not isinstance(table_format, SupportsPolling):
        return table_format.open(store).snapshot().version
    version = None
    if table.version is not None:
        version = table_format.latest_version(store, after=table.version - 1)
    if version is None:
        # The version that is known is not there: it was a wrong one, or of an earlier table.
        version = table_format.latest_version(store)
    if version is None:
        raise NotATableError(f"there is no table at {table.url}", table=table.url)
    return version
