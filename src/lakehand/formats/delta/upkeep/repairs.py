"""What is to be done about an examined log: a pure choice.

Nothing that still says something is thrown away without the word of the caller. Without it only
such objects leave the log that no version needs: broken checkpoints whose commits are all there,
pointers and checksums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehand.formats.delta.protocol.names import (
    LAST_CHECKPOINT_KEY,
    CompactionName,
    parse_log_name,
)
from lakehand.formats.delta.upkeep.expired import IN_PROGRESS, stretches
from lakehand.model.repair import Refusal, Repair

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from datetime import datetime

    from lakehand.formats.delta.upkeep.examination import BadCheckpoint, LogExamination
    from lakehand.model.verification import Finding

__all__ = ["LogPlan", "plan_log_repair"]

_COMMITS_STAY = "commits are never changed once they are published"
_NEEDS_CONSENT = "versions would be lost; allow it with --accept-data-loss"
_UNREPAIRABLE = {
    "malformed_commit": _COMMITS_STAY,
    "wrong_commit_time": _COMMITS_STAY,
    "unknown_feature": "lakehand writes nothing to a table whose features it does not know",
    "wrong_feature": "the protocol of a table is changed by its owner only",
    "incomplete_log": "there is nothing that the table could be rebuilt from",
}
_POINTERS = ("corrupt_last_checkpoint", "stale_last_checkpoint", "missing_last_checkpoint")
_SUMS = ("wrong_checksum_file", "stale_hadoop_sum")


@dataclass(frozen=True, kw_only=True, slots=True)
class LogPlan:
    """What is to be done, in the order in which it is done."""

    #: The last version that stays; later ones are set aside. None: all stay.
    last_version: int | None = None
    #: What holds later versions, those that must go last at the end.
    later: tuple[str, ...] = ()
    #: Objects that no version needs.
    needless: tuple[str, ...] = ()
    #: Version whose checkpoint is written anew.
    checkpoint: int | None = None
    #: Whether the pointer to the newest checkpoint is made anew.
    points: bool = False
    #: The first version that stays; older ones are set aside. None: all stay.
    first_version: int | None = None
    repairs: tuple[Repair, ...] = ()
    refused: tuple[Refusal, ...] = ()


def plan_log_repair(
    log: LogExamination,
    findings: Sequence[Finding],
    *,
    accept_data_loss: bool,
    now: datetime,
) -> LogPlan:
    """Choose what is done about `findings` of `log`; the rest is refused with its reason."""
    last = _last_version(log) if accept_data_loss else None
    first = _first_version(log, last) if accept_data_loss else None
    later = tuple(_later_objects(log, last))
    folded = tuple(_replaceable(log, last))
    fragments = _old_fragments(log, now)
    sums = tuple(f.path for f in findings if f.name in _SUMS and f.path)
    broken = tuple(key for checkpoint in folded for key in checkpoint.files.keys)
    needless = tuple(key for key in (*broken, *fragments, *sums) if key not in later)
    checkpoint = _rewritten(log, folded)
    is_pointer_bad = any(f.name in _POINTERS for f in findings)
    points = is_pointer_bad or bool(later) or bool(folded) or first is not None
    plan = LogPlan(
        last_version=last,
        later=later,
        needless=needless,
        checkpoint=checkpoint,
        points=points,
        first_version=first,
    )
    return replace(
        plan,
        repairs=tuple(_repairs(log, plan)),
        refused=tuple(_refused(log, findings, plan, accept_data_loss=accept_data_loss)),
    )


def _last_version(log: LogExamination) -> int | None:
    """Return the version to go back to; None if the newest one can be put together, or none can."""
    newest = log.newest_buildable
    return None if newest is None or newest == log.version else newest


def _first_version(log: LogExamination, last: int | None) -> int | None:
    """Return the first version to keep where only older ones cannot be read; None: keep all."""
    newest = log.version if last is None else last
    bad = [version for version in log.bad_versions if newest is not None and version <= newest]
    if not bad or log.newest_buildable is None:
        return None
    after = [check.version for check in log.sound if check.version >= max(bad)]
    return min(after, default=None)


def _later_objects(log: LogExamination, last: int | None) -> Iterator[str]:
    """Yield what holds versions above `last`, the newest version first."""
    if last is None:
        return
    versions = {info.key: _version(info.key) for info in log.objects}
    above = [key for key, version in versions.items() if version is not None and version > last]
    yield from sorted(above, key=lambda key: (versions[key], key), reverse=True)


def _version(key: str) -> int | None:
    name = parse_log_name(key)
    if name is None:
        return None
    return name.last if isinstance(name, CompactionName) else name.version


def _replaceable(log: LogExamination, last: int | None) -> Iterator[BadCheckpoint]:
    """Yield bad checkpoints whose versions can be put together without them."""
    for checkpoint in log.bad:
        version = checkpoint.files.version
        if log.buildable.get(version) and (last is None or version <= last):
            yield checkpoint


def _rewritten(log: LogExamination, folded: Collection[BadCheckpoint]) -> int | None:
    """Return the newest version whose checkpoint goes and for which no sound one stands in."""
    newest = max((checkpoint.files.version for checkpoint in folded), default=None)
    sound = max((check.version for check in log.sound), default=-1)
    return newest if newest is not None and newest > sound else None


def _old_fragments(log: LogExamination, now: datetime) -> tuple[str, ...]:
    """Return fragments of checkpoints that nobody can be writing any more."""
    old = [info for info in log.fragments if info.modified_at < now - IN_PROGRESS]
    return tuple(info.key for info in old)


def _repairs(log: LogExamination, plan: LogPlan) -> Iterator[Repair]:
    if plan.last_version is not None:
        lost = f"versions {plan.last_version + 1:,} to {log.version:,}"
        yield Repair(
            name="forget_versions",
            message=f"go back to version {plan.last_version:,}, the newest that can be read",
            paths=plan.later,
            loses=f"{lost}, with what was written in them; their files stay until a vacuum",
        )
    if plan.needless:
        message = "set aside what no version needs, and what misleads readers"
        yield Repair(name="set_aside", message=message, paths=plan.needless)
    if plan.checkpoint is not None:
        message = f"write the checkpoint of version {plan.checkpoint:,} again from the commits"
        yield Repair(name="rewrite_checkpoint", message=message)
    if plan.points:
        yield Repair(
            name="point_to_checkpoint",
            message="point to the newest sound checkpoint",
            paths=(LAST_CHECKPOINT_KEY,),
        )
    if plan.first_version is not None:
        older = stretches(log.objects, plan.first_version)
        yield Repair(
            name="forget_history",
            message=f"begin the history with version {plan.first_version:,}",
            paths=tuple(i.key for stretch in older for i in (*stretch.anchors, *stretch.others)),
            loses=f"versions before {plan.first_version:,} can no longer be read; no rows of the"
            " newest version are lost",
        )


def _refused(
    log: LogExamination, findings: Sequence[Finding], plan: LogPlan, *, accept_data_loss: bool
) -> Iterator[Refusal]:
    for finding in findings:
        reason = _reason(log, finding, plan, accept_data_loss=accept_data_loss)
        if reason is not None:
            yield Refusal(
                name=finding.name, path=finding.path, version=finding.version, reason=reason
            )


def _reason(
    log: LogExamination, finding: Finding, plan: LogPlan, *, accept_data_loss: bool
) -> str | None:
    """Say why nothing is done about a finding; None if something is."""
    gone = {*plan.needless, *plan.later}
    if finding.name in {"missing_commit", "corrupt_commit"}:
        return _why_commits_stay(log, plan, accept_data_loss=accept_data_loss)
    if finding.name in {"broken_checkpoint", "checkpoint_differs"} and finding.path not in gone:
        return "the versions that it stands for cannot be put together without it"
    if finding.name == "incomplete_checkpoint" and finding.path not in gone:
        return "it is younger than a day, so somebody may be writing it"
    if finding.version is not None and _is_forgotten(finding.version, plan):
        return None
    return _UNREPAIRABLE.get(finding.name)


def _why_commits_stay(log: LogExamination, plan: LogPlan, *, accept_data_loss: bool) -> str | None:
    if plan.last_version is not None or plan.first_version is not None:
        return None
    if log.newest_buildable is None:
        return "no version can be put together from what is left; bring objects from a backup"
    return None if accept_data_loss else _NEEDS_CONSENT


def _is_forgotten(version: int, plan: LogPlan) -> bool:
    is_later = plan.last_version is not None and version > plan.last_version
    return is_later or (plan.first_version is not None and version < plan.first_version)
