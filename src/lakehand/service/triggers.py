"""When the maintenance of a table is due, and the job that does it.

Looks of the scheduler and notifications decide by the same rules: the limits of `check_after`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakehand.model.maintenance import MAINTENANCE_STEPS
from lakehand.service.job_specs import pool_of
from lakehand.service.scores import head_start
from lakehand.service.store.records import FOREVER, JobRequest
from lakehand.service.windows import windows_of

if TYPE_CHECKING:
    from lakehand.service.config import Policy, ServiceConfig
    from lakehand.service.scores import TableScore
    from lakehand.service.store.table_registry import RegisteredTable


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What is known of a table's changes since it was last assessed."""

    version: int | None
    commits: int
    bytes: int


def changes_seen(table: RegisteredTable, version: int | None) -> Changes:
    """Return the changes of a table whose newest version was looked up."""
    return Changes(version=version, commits=_commits_since(table, version), bytes=table.bytes_since)


def changes_notified(table: RegisteredTable, version: int | None, bytes_added: int) -> Changes:
    """Return the changes of a table after a notification.

    A version that is known already adds nothing, so that a notification may come twice, late, or
    in any order. One without a version counts as one commit.
    """
    is_old = version is not None and table.version is not None and version <= table.version
    if is_old:
        return changes_seen(table, table.version)
    newest = table.version if version is None else version
    commits = table.commits_since + 1
    if version is not None and table.assessed_version is not None:
        commits = version - table.assessed_version
    return Changes(
        version=newest,
        commits=max(commits, table.commits_since),
        bytes=table.bytes_since + bytes_added,
    )


def _commits_since(table: RegisteredTable, version: int | None) -> int:
    """Return how many commits have come since the table was assessed, as far as it is known."""
    if version is None or table.assessed_version is None:
        return table.commits_since
    return max(table.commits_since, version - table.assessed_version)


def find_trigger(
    table: RegisteredTable, policy: Policy, changes: Changes, now: float
) -> str | None:
    """Return why a table is to be maintained now; None if it is not."""
    after = policy.check_after
    if not policy.enabled:
        return None
    if table.assessed_at is None:
        return "found"
    if changes.commits == 0:
        # A vacuum becomes due though nothing changes.
        due_at = (table.summary or {}).get("due_at")
        return "time" if due_at is not None and due_at <= now else None
    if changes.commits >= after.commits:
        return "commits"
    if changes.bytes >= after.bytes:
        return "bytes"
    return "time" if now >= table.assessed_at + after.time.total_seconds() else None


def next_look_at(table: RegisteredTable, policy: Policy, now: float) -> float:
    """Return when a table with few new commits is to be looked at: when its time has come."""
    due = (table.assessed_at or now) + policy.check_after.time.total_seconds()
    return min(table.look_at, max(due, now))


def state_after(changes: Changes, trigger: str | None, now: float) -> dict[str, Any]:
    """Return the columns of a table that a decision changes: with a job, counting starts again."""
    if trigger is None:
        return {
            "version": changes.version,
            "commits_since": changes.commits,
            "bytes_since": changes.bytes,
        }
    return {
        "version": changes.version,
        "assessed_version": changes.version,
        "assessed_at": now,
        "commits_since": 0,
        "bytes_since": 0,
    }


def next_window(config: ServiceConfig, policy: Policy, now: float) -> tuple[float, float | None]:
    """Return from when and until when the jobs of a policy may run next."""
    if not (policy.windows or policy.quiet):
        return now, None
    windows = windows_of(policy, config.service.time_zone)
    opening = windows.next_opening(datetime.fromtimestamp(now, UTC))
    if opening is None:
        return FOREVER, None
    closes = opening.closes_at
    return opening.opens_at.timestamp(), None if closes is None else closes.timestamp()


def job_request(
    config: ServiceConfig,
    table: RegisteredTable,
    policy: Policy,
    *,
    verb: str,
    trigger: str,
    version: int | None,
    now: float,
    score: TableScore | None = None,
) -> JobRequest:
    """Return the job of a verb that is due, with what the policy says of it."""
    options = {}
    opens_at, closes_at = next_window(config, policy, now)
    if verb == "maintain":
        options["skip"] = sorted(set(MAINTENANCE_STEPS) - set(policy.steps))
    return JobRequest(
        table_id=table.id,
        verb=verb,
        trigger=trigger,
        options=options,
        reasons=[f"version {version}", *(() if score is None else score.reasons)],
        score=0.0 if score is None else score.score,
        expected={} if score is None else score.expected(),
        head_start=head_start(0.0 if score is None else score.score, importance=policy.importance),
        delay=max(0.0, opens_at - now),
        runs_until=closes_at,
        pool=policy.pool,
        engine=pool_of(config, policy.pool).engine,
    )
