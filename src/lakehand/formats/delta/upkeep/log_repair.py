"""Repairing a log. What leaves it is copied first; a repair that dies is done again by the next.

In each order of steps the log says less than before, and never something else: until the last of
the versions that go is gone, the table is as unreadable as it was.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakehand.errors import ObjectExistsError, RefusedError
from lakehand.formats.delta.checkpoints.check import check_checkpoint
from lakehand.formats.delta.checkpoints.checkpoint import write_checkpoint
from lakehand.formats.delta.checkpoints.hadoop_sums import delete_hadoop_sum
from lakehand.formats.delta.checkpoints.last_checkpoint import write_last_checkpoint
from lakehand.formats.delta.commits.commit_info import ENGINE_INFO
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.protocol.features import require_write
from lakehand.formats.delta.protocol.names import LAST_CHECKPOINT_KEY, commit_key
from lakehand.formats.delta.upkeep.aside import Aside
from lakehand.formats.delta.upkeep.expired import stretches
from lakehand.formats.delta.upkeep.log_findings import look_at_log
from lakehand.formats.delta.upkeep.repairs import LogPlan, plan_log_repair
from lakehand.model.repair import LogRepair, Refusal
from lakehand.observe.steps import Step, reached

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.delta.upkeep.examination import LogExamination
    from lakehand.model.repair import Consent
    from lakehand.model.verification import Finding
    from lakehand.observe.clock import Clock
    from lakehand.storage import Store

__all__ = ["repair_log"]


def repair_log(store: Store, consent: Consent, *, clock: Clock, dry_run: bool = False) -> LogRepair:
    """Set right what can be set right in the log; `dry_run` only says what that would be."""
    log, findings = look_at_log(store, now=clock.now())
    refusal = _feature_refusal(store, log)
    if refusal is not None:
        return LogRepair(repairs=(), refused=tuple(_all_refused(findings, refusal)))
    plan = plan_log_repair(log, findings, consent=consent, now=clock.now())
    done = LogRepair(repairs=plan.repairs, refused=plan.refused)
    if dry_run or not plan.repairs:
        return done
    aside = _Repairing(store, log, plan, clock=clock).run()
    return LogRepair(
        repairs=plan.repairs,
        refused=plan.refused,
        aside=aside.directory if aside.copied else None,
    )


def _feature_refusal(store: Store, log: LogExamination) -> RefusedError | None:
    """Return why lakehand must not write to this log; what cannot be read cannot forbid it."""
    if log.refusal is not None or log.state is None:
        return log.refusal
    try:
        require_write("checkpoint", log.state.protocol, log.state.metadata, table=store.url)
    except RefusedError as error:
        return error
    return None


def _all_refused(findings: Sequence[Finding], refusal: RefusedError) -> list[Refusal]:
    return [
        Refusal(name=f.name, path=f.path, version=f.version, reason=refusal.message)
        for f in findings
    ]


class _Repairing:
    """One repair of one log."""

    def __init__(self, store: Store, log: LogExamination, plan: LogPlan, *, clock: Clock) -> None:
        self._store = store
        self._log = log
        self._plan = plan
        self._clock = clock
        self._aside = Aside(store, now=clock.now())

    def run(self) -> Aside:
        plan = self._plan
        if plan.points:
            # Without a pointer readers list the log, so nothing leads them astray meanwhile.
            self._aside.move([LAST_CHECKPOINT_KEY])
        self._forget_versions()
        self._aside.copy(plan.needless)
        reached(Step.REPAIR_COPIED)
        self._aside.delete(plan.needless)
        reached(Step.REPAIR_SET_ASIDE)
        if plan.checkpoint is not None:
            write_checkpoint(self._store, version=plan.checkpoint, clock=self._clock)
        if plan.points:
            self._point()
        self._forget_history()
        return self._aside

    def _forget_versions(self) -> None:
        """Set later versions aside, the one right after the last that stays at the very end.

        As long as that one is there nobody can commit its number again and join it to old ones.
        """
        later = self._plan.later
        if not later or self._plan.last_version is None:
            return
        self._aside.copy(later)
        reached(Step.REPAIR_COPIED)
        lowest = commit_key(self._plan.last_version + 1)
        self._aside.delete([key for key in later if key != lowest])
        reached(Step.REPAIR_FORGETTING)
        self._aside.delete([key for key in later if key == lowest])

    def _point(self) -> None:
        checkpoints = sorted(list_log(self._store).checkpoints, key=lambda c: c.rank, reverse=True)
        for checkpoint in checkpoints:
            check = check_checkpoint(self._store, checkpoint)
            if check.problem is None:
                write_last_checkpoint(self._store, check.pointer)
                return

    def _forget_history(self) -> None:
        """Set older versions aside, in the order of a cleanup: what is left is always readable."""
        first = self._plan.first_version
        if first is None:
            return
        chosen = stretches(self._log.objects, first)
        keys = [i.key for stretch in chosen for i in (*stretch.anchors, *stretch.others)]
        self._aside.copy(keys)
        self._replace_commit(first)
        reached(Step.REPAIR_COPIED)
        for stretch in chosen:
            self._aside.delete(info.key for info in stretch.anchors)
            self._aside.delete(info.key for info in stretch.others)
            reached(Step.REPAIR_FORGETTING)

    def _replace_commit(self, version: int) -> None:
        """Give a checkpoint a commit to stand beside, if its own is of no use: engines ask for one.

        It says nothing but that; what it said is in the checkpoint.
        """
        if version not in self._log.bad_versions:
            return
        if version in self._log.commits:
            self._aside.move([commit_key(version)])
        at = self._time_before(version + 1)
        info: dict[str, Any] = {"timestamp": at, "inCommitTimestamp": at, "operation": "REPAIR"}
        info |= {"operationParameters": {}, "engineInfo": ENGINE_INFO}
        line = json.dumps({"commitInfo": info}, separators=(",", ":"))
        delete_hadoop_sum(self._store, commit_key(version))
        try:
            self._store.put_if_absent(commit_key(version), f"{line}\n".encode())
        except ObjectExistsError:
            # Somebody has brought it back from a backup meanwhile.
            return

    def _time_before(self, version: int) -> int:
        """Return a time for the version before `version`, in milliseconds since the epoch."""
        now_ms = int(self._clock.now().timestamp() * 1000)
        follower = self._log.commits.get(version)
        claimed = None if follower is None else follower.in_commit_timestamp
        return now_ms if claimed is None else min(now_ms, claimed - 1)
