"""Repairs: what each finding of verify is repaired by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehand.errors import LakehandError, RefusedError
from lakehand.formats.delta.deletion_vectors.format import DvDescriptor, read_any_cardinality
from lakehand.formats.delta.protocol.names import (
    LAST_CHECKPOINT_KEY,
    OTHER_PATHS,
    CheckpointName,
    CommitName,
    CompactionName,
    decode_path,
    parse_log_name,
)
from lakehand.formats.delta.repair.log_findings import NO_JSON, summed_key
from lakehand.formats.delta.retention.log_cleanup import IN_PROGRESS, stretches
from lakehand.model.verification import Finding, Refusal, Repair
from lakehand.model.work import Change, ChangeKind, DataFile, Refreshed, StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from lakehand.formats.delta.repair.examination import BadCheckpoint, LogExamination
    from lakehand.formats.worker import StatisticsWorker
    from lakehand.model.remedies import Consent, ConsentName, FileRepair
    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import Store

_VECTOR = "deletionVector"
_TAKEN = ("partitionValues", "tags", "clusteringProvider")


@dataclass(frozen=True, slots=True)
class Means:
    """Where files are, and what reads them."""

    store: Store
    worker: StatisticsWorker


if TYPE_CHECKING:
    _Parts = Callable[[Means, Sequence[DataFile]], dict[str, Any]]


def repairing_change(
    means: Means, snapshot: Snapshot, repair: FileRepair, files: Sequence[DataFile]
) -> Change:
    """Return the change that does `repair` to `files` of the newest version."""
    kind, parts = _REPAIRS[repair]
    return Change(
        kind=kind,
        base_version=snapshot.version,
        table_id=snapshot.table_id,
        operation="REPAIR",
        parameters={"repair": repair, "files": len(files)},
        **parts(means, files),
    )


def _dropped(_means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    return {"removes": tuple(files)}


def _without_other_entries(_means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    """Remove what the log has of files under other spellings of their paths."""
    others = [(file, path) for file in files for path in file.native.get(OTHER_PATHS, ())]
    return {
        "removes": tuple(
            replace(
                file, path=decode_path(path), native={"add": {**file.native["add"], "path": path}}
            )
            for file, path in others
        )
    }


def _recomputed(means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    """Recompute the statistics of files that are otherwise as recorded."""
    found = [_value(item) for item in means.worker.refresh(files)]
    return {"refreshed": tuple(item for item in found if not item.is_known)}


def _as_they_are(means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    """State the size and the statistics that files have now."""
    current = []
    for file in files:
        place, key = means.store.resolve(file.path)
        size = place.head(key).bytes
        if file.native["add"].get(_VECTOR) and size != file.bytes:
            raise RefusedError(
                f"rows of {file.path} are deleted by their positions in the file that was"
                " committed, and it is another one now",
                table=means.store.url,
                operation="repair",
                hint="restore the file from a backup, or drop it with --accept-data-loss",
            )
        current.append(replace(file, bytes=size, rows=None))
    found = [_value(item) for item in means.worker.refresh(current, accept_changes=True)]
    return {
        "refreshed": tuple(
            replace(item, native={**item.native, "size": item.file.bytes}) for item in found
        )
    }


def _counted(means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    """State as many deleted rows as vectors hold, whose bytes have the right checksum."""
    refreshed = []
    for file in files:
        described = file.native["add"][_VECTOR]
        vector = DvDescriptor.from_json(described)
        count = len(read_any_cardinality(means.store, vector, rows=file.rows))
        native = {_VECTOR: {**described, "cardinality": count}}
        refreshed.append(Refreshed(file=file, native=native))
    return {"refreshed": tuple(refreshed)}


def _without_vectors(means: Means, files: Sequence[DataFile]) -> dict[str, Any]:
    """Have all rows of files again, those among them that were deleted by a vector."""
    whole = [replace(file, deleted_rows=0, native=_plain(file.native)) for file in files]
    staged = []
    for item in (_value(found) for found in means.worker.refresh(whole, accept_changes=True)):
        add = item.file.native["add"]
        native = {name: add[name] for name in _TAKEN if name in add} | dict(item.native)
        file = item.file
        staged.append(StagedFile(path=file.path, bytes=file.bytes, rows=item.rows, native=native))
    metrics = {"numDeletionVectorsAdded": 0, "numDeletionVectorsUpdated": 0}
    return {"removes": tuple(files), "adds": tuple(staged), "metrics": metrics}


def _plain(native: Mapping[str, Any]) -> dict[str, Any]:
    add = {name: value for name, value in native["add"].items() if name != _VECTOR}
    return {"add": add}


def _value(found: Refreshed | LakehandError) -> Refreshed:
    if isinstance(found, LakehandError):
        raise found
    return found


_REPAIRS: Mapping[FileRepair, tuple[ChangeKind, _Parts]] = {
    "drop_files": ("delete", _dropped),
    "remove_duplicate_entries": ("delete", _without_other_entries),
    "recompute_statistics": ("statistics", _recomputed),
    "accept_changed_files": ("statistics", _as_they_are),
    "correct_deletion_count": ("statistics", _counted),
    "restore_deleted_rows": ("delete", _without_vectors),
}


_COMMITS_STAY = "commits are never changed once they are published"
_NEEDS_CONSENT = "versions would be lost; allow it with --accept-data-loss"
_WHY_SUMS_STAY: Mapping[ConsentName, str] = {
    "accept_changed_files": "it says that the log has changed since it was written, so the log may"
    " have lost something: compare the log with a backup; --accept-changed-files accepts the"
    " current log and moves the checksum out of the log",
    "accept_data_loss": "it was written with a version that is not in the log, so a commit may be"
    " lost: restore it from a backup; --accept-data-loss accepts the loss and moves the checksum"
    " out of the log",
}
_UNREPAIRABLE = {
    "malformed_commit": _COMMITS_STAY,
    "wrong_commit_time": _COMMITS_STAY,
    "unknown_feature": "lakehand writes nothing to a table whose features it does not know",
    "wrong_feature": "the protocol of a table is changed by its owner only",
    "incomplete_log": "there is nothing that the table could be rebuilt from",
}
_POINTERS = ("corrupt_last_checkpoint", "stale_last_checkpoint", "missing_last_checkpoint")
_SUMS = ("wrong_checksum_file", "stale_hadoop_sum")
_CHECKPOINTS = ("broken_checkpoint", "checkpoint_differs", "incomplete_checkpoint")


@dataclass(frozen=True, kw_only=True, slots=True)
class LogPlan:
    """What is to be done, in the order in which it is done."""

    #: The last version that stays; later ones are backed up and removed. None: all stay.
    last_version: int | None = None
    #: What holds later versions, those that must go last at the end.
    later: tuple[str, ...] = ()
    #: Objects that no version needs.
    needless: tuple[str, ...] = ()
    #: Version whose checkpoint is rewritten.
    checkpoint: int | None = None
    #: Whether the pointer to the newest checkpoint is rewritten.
    points: bool = False
    #: The first version that stays; older ones are backed up and removed. None: all stay.
    first_version: int | None = None
    repairs: tuple[Repair, ...] = ()
    refused: tuple[Refusal, ...] = ()


def plan_log_repair(
    log: LogExamination, findings: Sequence[Finding], *, consent: Consent, now: datetime
) -> LogPlan:
    """Choose what is done about `findings` of `log`; the rest is refused with its reason."""
    last = _last_version(log) if consent.accept_data_loss else None
    first = _first_version(log, last) if consent.accept_data_loss else None
    later = tuple(_later_objects(log, last))
    folded = tuple(_replaceable(log, last, consent))
    fragments = _old_fragments(log, now)
    sums = tuple(
        f.path
        for f in findings
        if f.name in _SUMS and f.path and consent.allows(_sum_consent(log, f))
    )
    broken = tuple(key for checkpoint in folded for key in checkpoint.files.keys)
    needless = tuple(key for key in (*broken, *fragments, *sums) if key not in later)
    checkpoint = _rewritten(log, folded)
    is_pointer_bad = any(f.name in _POINTERS for f in findings) and not _is_held(log, consent)
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
        refused=tuple(_refused(log, findings, plan, consent)),
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


def _replaceable(
    log: LogExamination, last: int | None, consent: Consent
) -> Iterator[BadCheckpoint]:
    """Yield bad checkpoints whose versions can be put together without them.

    One that has something which the commits lack shows that these may have lost something.
    """
    for checkpoint in log.bad:
        version = checkpoint.files.version
        is_held = checkpoint.extra is not None and not consent.accept_data_loss
        if log.buildable.get(version) and (last is None or version <= last) and not is_held:
            yield checkpoint


def _is_held(log: LogExamination, consent: Consent) -> bool:
    """Say whether the pointer leads to a checkpoint that stays because of what it has."""
    held = {checkpoint.files.version for checkpoint in log.bad if checkpoint.extra}
    is_pointed_to = log.pointer is not None and log.pointer.version in held
    return is_pointed_to and not consent.accept_data_loss


def _sum_consent(log: LogExamination, finding: Finding) -> ConsentName | None:
    """Return what moving a checksum away asks for: most are evidence of what they contradict."""
    if finding.name == "wrong_checksum_file":
        if finding.found == NO_JSON:
            return None
        is_later = finding.version is not None and finding.version > (log.version or 0)
        return "accept_data_loss" if is_later else "accept_changed_files"
    name = parse_log_name(summed_key(finding.path or "") or "")
    if isinstance(name, CommitName):
        is_later = name.version > (-1 if log.version is None else log.version)
        return "accept_data_loss" if is_later else "accept_changed_files"
    return "accept_changed_files" if isinstance(name, CheckpointName) else None


def _rewritten(log: LogExamination, folded: Collection[BadCheckpoint]) -> int | None:
    """Return the newest version whose checkpoint goes and for which no sound one stands in."""
    newest = max((checkpoint.files.version for checkpoint in folded), default=None)
    sound = max((check.version for check in log.sound), default=-1)
    return newest if newest is not None and newest > sound else None


def _old_fragments(log: LogExamination, now: datetime) -> tuple[str, ...]:
    """Return parts of checkpoints that are too old to be still being written."""
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
        message = "back up and remove log files that no version needs, or that mislead readers"
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
    log: LogExamination, findings: Sequence[Finding], plan: LogPlan, consent: Consent
) -> Iterator[Refusal]:
    for finding in findings:
        reason, asked = _reason(log, finding, plan, consent)
        if reason is not None:
            yield Refusal(
                name=finding.name,
                path=finding.path,
                version=finding.version,
                reason=reason,
                consent=() if asked is None else (asked,),
            )


def _reason(
    log: LogExamination, finding: Finding, plan: LogPlan, consent: Consent
) -> tuple[str | None, ConsentName | None]:
    """Say why nothing is done about a finding, and what consent it asks for; None: something is."""
    gone = {*plan.needless, *plan.later}
    if finding.name in {"missing_commit", "corrupt_commit"}:
        return _why_commits_stay(log, plan, consent)
    # A hidden checksum goes with its file.
    if finding.name in _SUMS and gone.isdisjoint({finding.path, summed_key(finding.path or "")}):
        asked = _sum_consent(log, finding)
        return (None, None) if asked is None else (_WHY_SUMS_STAY[asked], asked)
    if finding.name in _POINTERS and _is_held(log, consent):
        return "it points to a checkpoint that is not changed", "accept_data_loss"
    if finding.name in _CHECKPOINTS and finding.path not in gone:
        return _why_checkpoint_stays(log, finding)
    if finding.version is not None and _is_forgotten(finding.version, plan):
        return None, None
    return _UNREPAIRABLE.get(finding.name), None


def _why_checkpoint_stays(
    log: LogExamination, finding: Finding
) -> tuple[str | None, ConsentName | None]:
    if finding.name == "incomplete_checkpoint":
        return "it is younger than a day, so another process may be writing it", None
    found = (bad.extra for bad in log.bad if bad.files.keys[0] == finding.path)
    extra = next(found, None)
    if extra is None:
        return "without it, its versions cannot be read", None
    reason = (
        f"it has {extra} that the commits lack, which readers would lose with it: compare the"
        " commits with a backup; --accept-data-loss writes it again from them"
    )
    return reason, "accept_data_loss"


def _why_commits_stay(
    log: LogExamination, plan: LogPlan, consent: Consent
) -> tuple[str | None, ConsentName | None]:
    if plan.last_version is not None or plan.first_version is not None:
        return None, None
    if log.newest_buildable is None:
        return "no version can be put together from what is left; bring objects from a backup", None
    return (None, None) if consent.accept_data_loss else (_NEEDS_CONSENT, "accept_data_loss")


def _is_forgotten(version: int, plan: LogPlan) -> bool:
    is_later = plan.last_version is not None and version > plan.last_version
    return is_later or (plan.first_version is not None and version < plan.first_version)
