"""Repairing a log. What leaves it is backed up first; a repair that dies is redone by the next."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehand.errors import ObjectExistsError, ObjectNotFoundError, RefusedError, StorageError
from lakehand.formats.delta.checkpoints.checkpoint import write_checkpoint
from lakehand.formats.delta.checkpoints.files import delete_hadoop_sum
from lakehand.formats.delta.checkpoints.last_checkpoint import (
    check_checkpoint,
    write_last_checkpoint,
)
from lakehand.formats.delta.commits.commit_info import ENGINE_INFO
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.protocol.features import require_write
from lakehand.formats.delta.protocol.names import LAST_CHECKPOINT_KEY, commit_key
from lakehand.formats.delta.repair.log_findings import look_at_log
from lakehand.formats.delta.repair.repairs import LogPlan, plan_log_repair
from lakehand.formats.delta.retention.log_cleanup import stretches
from lakehand.model.verification import Finding, LogRepair, Refusal
from lakehand.observe.steps import Step, reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lakehand.formats.delta.repair.examination import LogExamination
    from lakehand.model.remedies import Consent
    from lakehand.observe.clock import Clock
    from lakehand.storage import Store

ASIDE_DIRECTORY = "_lakehand/aside"
_COPY_BYTES = 4 * 2**20


class Aside:
    """The directory with the backups of one repair."""

    def __init__(self, store: Store, *, now: datetime) -> None:
        self._store = store
        self.directory = f"{ASIDE_DIRECTORY}/{now:%Y%m%dT%H%M%SZ}-{uuid4().hex[:8]}"
        #: Keys that were copied.
        self.copied: list[str] = []

    def copy(self, keys: Iterable[str]) -> None:
        """Copy objects, which stay where they are; those that are gone already are passed over."""
        for key in keys:
            try:
                source = self._store.open_reader(key)
            except ObjectNotFoundError:
                continue
            with source, self._store.open_writer(f"{self.directory}/{key}") as target:
                shutil.copyfileobj(source, target, _COPY_BYTES)
            self.copied.append(key)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects from the log that were copied before."""
        chosen = list(keys)
        uncopied = set(chosen) - set(self.copied)
        if any(self._store.exists(key) for key in uncopied):
            raise StorageError(f"{min(uncopied)} is not copied, so it is not deleted")
        for failure in self._store.delete(chosen):
            raise failure.error
        for key in chosen:
            delete_hadoop_sum(self._store, key)

    def move(self, keys: Iterable[str]) -> None:
        """Move objects to the backup."""
        chosen = list(keys)
        self.copy(chosen)
        self.delete(chosen)


def repair_log(store: Store, consent: Consent, *, clock: Clock, dry_run: bool = False) -> LogRepair:
    """Repair what can be repaired in the log; `dry_run` only reports it."""
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
            # Without a pointer readers list the log, which is always correct.
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
        """Move later versions to the backup, the one right after the last that stays at the end.

        As long as that one exists no writer can commit its number again, before the old ones.
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
        """Move older versions to the backup, like a log cleanup: the rest is always readable."""
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
        """Write a commit for a checkpoint whose commit is unusable: engines ask for one.

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
            # It was restored from a backup during the repair.
            return

    def _time_before(self, version: int) -> int:
        """Return a time for the version before `version`, in milliseconds since the epoch."""
        now_ms = int(self._clock.now().timestamp() * 1000)
        follower = self._log.commits.get(version)
        claimed = None if follower is None else follower.in_commit_timestamp
        return now_ms if claimed is None else min(now_ms, claimed - 1)
