"""What an examined log says is wrong, as findings."""

from __future__ import annotations

import struct
import zlib
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lakehand import errors
from lakehand.formats.delta.log.commit_times import first_with_own_time
from lakehand.formats.delta.log.log_state import LogState
from lakehand.formats.delta.log.snapshot import load_snapshot
from lakehand.formats.delta.protocol.actions import Metadata, Protocol, load_json
from lakehand.formats.delta.protocol.features import FEATURES, supported_features
from lakehand.formats.delta.protocol.names import (
    LAST_CHECKPOINT_KEY,
    LOG_DIRECTORY,
    OTHER_PATHS,
    ChecksumName,
    CommitName,
    commit_key,
    parse_log_name,
    version_prefix,
)
from lakehand.formats.delta.repair.examination import LogExamination, examine_log
from lakehand.formats.delta.repair.findings import finding
from lakehand.model.verification import Finding, LogCheck

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakehand.model.snapshot import Snapshot
    from lakehand.storage import ObjectInfo, Store

_HEADER = struct.Struct(">4sI")
_MAGIC = b"crc\x00"
_PREFIX, _SUFFIX = ".", ".crc"
#: Larger files are rare in a log, and reading them again costs more than the answer is worth.
_MOST_BYTES = 64 * 2**20
#: What is read of a data file without its rows.
_END_BYTES = 64 * 2**10


def summed_key(key: str) -> str | None:
    """Return the file that `key` is the hidden checksum of; None if it is none.

    >>> summed_key("_delta_log/.00000000000000000007.json.crc")
    '_delta_log/00000000000000000007.json'
    """
    folder, slash, name = key.rpartition("/")
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        return None
    return f"{folder}{slash}{name[len(_PREFIX) : -len(_SUFFIX)]}"


def sum_of(key: str) -> str:
    """Return the key that the hidden checksum of a file has.

    >>> sum_of("p=1/a.parquet")
    'p=1/.a.parquet.crc'
    """
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}{_PREFIX}{name}{_SUFFIX}"


def differs_from_its_sum(store: Store, key: str, *, whole: bool) -> bool:
    """Say whether a local file has other bytes than its hidden checksum says, if it has one.

    Unless `whole` is asked for, only the end of the file is read: its footer differs, too.
    """
    local, sums = store.local_path(key), store.local_path(sum_of(key))
    if local is None or sums is None or not sums.is_file() or not local.is_file():
        return False
    stated = sums.read_bytes()
    if len(stated) < _HEADER.size or stated[: len(_MAGIC)] != _MAGIC:
        return True
    _, portion = _HEADER.unpack_from(stated)
    size = local.stat().st_size
    count = -(-size // portion) if portion else -1
    if len(stated) != _HEADER.size + 4 * count:
        return True
    first = 0 if whole else max(0, count - _END_BYTES // portion - 1)
    with local.open("rb") as file:
        file.seek(first * portion)
        for number in range(first, count):
            start = _HEADER.size + 4 * number
            if zlib.crc32(file.read(portion)).to_bytes(4, "big") != stated[start : start + 4]:
                return True
    return False


def stale_sums(
    store: Store, objects: Iterable[ObjectInfo], *, newest_version: int | None
) -> Iterator[str]:
    """Yield hidden checksums among `objects` that are of other bytes than their files have.

    So are those of versions that are still to come: they wait for files that they do not know.
    """
    sizes = {info.key: info.bytes for info in objects}
    for key in sizes:
        summed = summed_key(key)
        if summed is None or store.local_path(key) is None:
            continue
        if summed not in sizes:
            if _is_later(summed, newest_version):
                yield key
        elif sizes[summed] <= _MOST_BYTES and _is_stale(store, key, summed):
            yield key


def _is_later(key: str, version: int | None) -> bool:
    name = parse_log_name(key)
    return isinstance(name, CommitName) and name.version > (-1 if version is None else version)


def _is_stale(store: Store, sum_key: str, key: str) -> bool:
    try:
        sums, data = store.get(sum_key), store.get(key)
    except errors.ObjectNotFoundError:
        return False
    return len(sums) < _HEADER.size or sums != _sums(data, like=sums)


def _sums(data: bytes, *, like: bytes) -> bytes:
    """Return the checksum file of `data` in the portions that `like` is made of."""
    _, portion = _HEADER.unpack_from(like)
    portion = portion or len(data) or 1
    parts = [data[start : start + portion] for start in range(0, len(data), portion)]
    sums = (zlib.crc32(part).to_bytes(4, "big") for part in parts)
    return _HEADER.pack(_MAGIC, portion) + b"".join(sums)


_READER_LIST, _WRITER_LIST = 3, 7
#: Checksum files that are compared, the newest ones: each takes as long as to open the table.
_CHECKSUMS = 10
#: What is found in a checksum file that cannot be read.
NO_JSON = "no JSON object"
#: How long a writer may take from a checkpoint to the pointer to it, and for all of its parts.
_POINTER_DELAY, _BEING_WRITTEN = timedelta(minutes=1), timedelta(hours=1)
#: Findings that come with the newest version, whichever that is.
_OF_THE_NEWEST = frozenset({"incomplete_log", "unknown_feature", "wrong_feature"})


def check_log(store: Store, *, now: datetime) -> LogCheck:
    """Say what is wrong with the log of a table, also where the table cannot be opened."""
    log, findings = look_at_log(store, now=now)
    return LogCheck(
        version=log.version,
        readable_version=None if log.state is None else log.state.segment.version,
        commits=len(log.commits),
        checkpoints=len(log.sound) + len(log.bad),
        findings=findings,
    )


def look_at_log(store: Store, *, now: datetime) -> tuple[LogExamination, tuple[Finding, ...]]:
    """Examine the log, and say what is wrong with it after a second look.

    What is wrong shows in several objects that are read one after the other, between which others
    may write: only what is found twice is wrong.
    """
    log = examine_log(store, now=now)
    findings = tuple(log_findings(store, log, now=now))
    if not findings:
        return log, ()
    first = {_identity(found) for found in findings}
    log = examine_log(store, now=now)
    again = log_findings(store, log, now=now)
    return log, tuple(found for found in again if _identity(found) in first)


def _identity(found: Finding) -> tuple[object, ...]:
    """Return what makes two findings the same, however many versions came between them."""
    version = None if found.name in _OF_THE_NEWEST else found.version
    return found.name, found.path, version, found.found


def log_findings(store: Store, log: LogExamination, *, now: datetime) -> Iterator[Finding]:
    """Yield what is wrong: commits first, then what stands for them."""
    yield from chain(
        _commit_findings(log),
        _time_findings(log),
        _feature_findings(log),
        _checkpoint_findings(log, now),
        _pointer_findings(log, now),
        _checksum_findings(store, log),
        _sum_findings(store, log),
    )


def _commit_findings(log: LogExamination) -> Iterator[Finding]:
    for version in log.missing:
        yield finding(
            "missing_commit",
            f"version {version} has no commit{_harm(log, version)}",
            path=commit_key(version),
            version=version,
        )
    for facts in log.corrupt:
        yield finding(
            "corrupt_commit",
            f"the commit of version {facts.version} cannot be used: {facts.problem}"
            f"{_harm(log, facts.version)}",
            path=commit_key(facts.version),
            version=facts.version,
            found=facts.problem,
        )
    for facts in log.commits.values():
        for flaw in facts.flaws:
            message = f"the commit of version {facts.version} breaks a rule: {flaw}"
            path = commit_key(facts.version)
            yield finding("malformed_commit", message, path=path, version=facts.version, found=flaw)
    if log.failure is not None and not log.bad_versions and not log.bad:
        yield finding("incomplete_log", log.failure, path=LOG_DIRECTORY, version=log.version)


def _harm(log: LogExamination, version: int) -> str:
    """Say which versions a bad commit makes unreadable."""
    after = [check.version for check in log.sound if check.version >= version]
    if after:
        return f"; versions {version} to {min(after) - 1} cannot be read, later ones can be"
    return f"; no version from {version} on can be read"


def _time_findings(log: LogExamination) -> Iterator[Finding]:
    if log.state is None:
        return
    newest = LogState(protocol=log.state.protocol, metadata=log.state.metadata)
    first = first_with_own_time(newest)
    if first is None:
        return
    previous: int | None = None
    for facts in log.commits.values():
        if facts.version < first or facts.problem:
            continue
        time = facts.in_commit_timestamp
        if time is None or (previous is not None and time <= previous):
            rule = "some time" if previous is None else f"a time after {previous}"
            yield finding(
                "wrong_commit_time",
                f"the commit of version {facts.version} must carry {rule}, and carries {time}",
                path=commit_key(facts.version),
                version=facts.version,
                expected=rule,
                found=time,
            )
        previous = previous if time is None else time


def _feature_findings(log: LogExamination) -> Iterator[Finding]:
    if log.state is None:
        if log.refusal is not None:
            yield finding("unknown_feature", log.refusal.message, version=log.version)
        return
    protocol, version = log.state.protocol, log.state.segment.version
    for name in supported_features(protocol):
        if name not in FEATURES:
            message = f"the table lists the feature {name}, which lakehand does not know"
            yield finding("unknown_feature", message, version=version, found=name)
    for what in _contradictions(protocol, log.state.metadata):
        yield finding("wrong_feature", what, version=version, found=protocol.to_json())


def _contradictions(protocol: Protocol, metadata: Metadata) -> Iterator[str]:
    reader_only = set(protocol.reader_features or ()) - set(protocol.writer_features or ())
    for name in sorted(reader_only):
        yield f"the feature {name} is listed for readers and not for writers"
    listed = (
        (protocol.reader_features, protocol.min_reader_version, _READER_LIST, "reader"),
        (protocol.writer_features, protocol.min_writer_version, _WRITER_LIST, "writer"),
    )
    for features, version, list_version, side in listed:
        if (features is not None) != (version >= list_version):
            owes = "must list its features" if features is None else "must list no features"
            yield f"a table of {side} version {version} {owes}"
    if protocol.min_writer_version >= _WRITER_LIST:
        # What was a preview once is the same feature.
        supported = {_final(name) for name in supported_features(protocol)}
        for feature in FEATURES.values():
            if _is_used(feature.name, metadata) and _final(feature.name) not in supported:
                yield f"the table uses the feature {feature.name}, which it does not list"


def _final(name: str) -> str:
    return name.removesuffix("-preview")


def _is_used(name: str, metadata: Metadata) -> bool:
    # Only what a property or the schema shows; a feature that is always active shows nothing.
    feature = FEATURES[name]
    empty = Metadata(id="", schema_string=None)
    return feature.is_active(metadata) and not feature.is_active(empty)


def _checkpoint_findings(log: LogExamination, now: datetime) -> Iterator[Finding]:
    for checkpoint in log.bad:
        version = checkpoint.files.version
        yield finding(
            "checkpoint_differs" if checkpoint.differs else "broken_checkpoint",
            f"the checkpoint of version {version} cannot be used: {checkpoint.reason}",
            path=checkpoint.files.keys[0],
            version=version,
            found=checkpoint.reason,
        )
    for info in log.fragments:
        if info.modified_at > now - _BEING_WRITTEN:
            continue
        state = "empty" if not info.bytes else "without its other parts"
        message = f"{info.key} is {state}, so readers pass it by"
        yield finding("incomplete_checkpoint", message, path=info.key, found=state)


def _pointer_findings(log: LogExamination, now: datetime) -> Iterator[Finding]:
    newest = max((check.version for check in log.sound), default=None)
    if newest is not None and _is_about_to_be_named(log, newest, now):
        return
    is_there = any(info.key == LAST_CHECKPOINT_KEY for info in log.objects)
    pointer = log.pointer
    expected = None if newest is None else f"version {newest}"
    if pointer is None:
        if is_there:
            message = "the pointer to the newest checkpoint cannot be read"
            yield finding(
                "corrupt_last_checkpoint", message, path=LAST_CHECKPOINT_KEY, expected=expected
            )
        elif newest is not None:
            message = f"nothing points to the checkpoint of version {newest}"
            yield finding(
                "missing_last_checkpoint", message, path=LAST_CHECKPOINT_KEY, expected=expected
            )
    elif pointer.version != newest:
        yield finding(
            "stale_last_checkpoint",
            f"the pointer to the newest checkpoint names version {pointer.version}, and"
            f" {'there is none' if newest is None else f'version {newest} is the newest'}",
            path=LAST_CHECKPOINT_KEY,
            expected=expected or "none",
            found=f"version {pointer.version}",
        )


def _is_about_to_be_named(log: LogExamination, newest: int, now: datetime) -> bool:
    """Say whether a checkpoint is so young that its writer may not have pointed to it yet."""
    if log.pointer is None and any(info.key == LAST_CHECKPOINT_KEY for info in log.objects):
        return False
    named = -1 if log.pointer is None else log.pointer.version
    keys = {key for c in log.listing.checkpoints if c.version == newest for key in c.keys}
    written = [info.modified_at for info in log.objects if info.key in keys]
    is_behind = named < newest and (log.pointer is not None or len(log.sound) == 1)
    return is_behind and max(written, default=now) > now - _POINTER_DELAY


def _checksum_findings(store: Store, log: LogExamination) -> Iterator[Finding]:
    """Compare the newest checksum files with their versions.

    One of a version that is still to come would be taken for that version's own.
    """
    for info in log.objects:
        name = parse_log_name(info.key)
        if isinstance(name, ChecksumName) and name.version > (log.version or 0):
            message = f"{info.key} is of a version that is not there"
            yield finding("wrong_checksum_file", message, path=info.key, version=name.version)
    keys = {info.key for info in log.objects}
    newest = -1 if log.snapshot is None else log.snapshot.version
    stated = (number for number in range(newest, -1, -1) if _checksum_key(number) in keys)
    for version in islice(stated, _CHECKSUMS):
        snapshot = _snapshot_at(store, log, version)
        if snapshot is not None:
            yield from _checksum_finding(_stated(store, _checksum_key(version)), snapshot)


def _checksum_key(version: int) -> str:
    return f"{version_prefix(version)}.crc"


def _snapshot_at(store: Store, log: LogExamination, version: int) -> Snapshot | None:
    if log.snapshot is not None and log.snapshot.version == version:
        return log.snapshot
    try:
        return load_snapshot(store, version=version)
    except (
        errors.CorruptFileError,
        errors.CorruptLogError,
        errors.ObjectNotFoundError,
        errors.VersionNotFoundError,
    ):
        # What is wrong with the version itself is another finding.
        return None


def _checksum_finding(stated: dict[str, Any], snapshot: Snapshot) -> Iterator[Finding]:
    for what, expected, found in islice(_checksum_differences(stated, snapshot), 1):
        key = _checksum_key(snapshot.version)
        yield finding(
            "wrong_checksum_file",
            f"{key} says {found} for {what}, and the version has {expected}",
            path=key,
            version=snapshot.version,
            expected=expected,
            found=found,
        )


def _stated(store: Store, key: str) -> dict[str, Any]:
    try:
        stated = load_json(store.get(key))
    except ValueError:
        return {}
    return stated if isinstance(stated, dict) else {}


def _checksum_differences(
    stated: dict[str, Any], snapshot: Snapshot
) -> Iterator[tuple[str, object, object]]:
    if not stated:
        yield "everything", "a JSON object", NO_JSON
        return
    spellings = pc.struct_field(snapshot.files["native"], OTHER_PATHS)
    # Other engines count a file under several paths several times.
    is_comparable = spellings.null_count == len(spellings)
    known = {"numFiles": snapshot.file_count, "tableSizeBytes": snapshot.total_bytes}
    known = known if is_comparable else {}
    for name, expected in known.items():
        if name in stated and stated[name] != expected:
            yield name, expected, stated[name]
    state = snapshot.native
    for name, kind, expected in (
        ("protocol", Protocol, state.protocol),
        ("metadata", Metadata, state.metadata),
    ):
        if stated.get(name) and _read(kind, stated[name]) != expected:
            yield name, "what its commits say", "something else"


def _read(kind: type[Protocol | Metadata], value: Any) -> Protocol | Metadata | None:
    try:
        return kind.from_json(value)
    except ValueError:
        return None


def _sum_findings(store: Store, log: LogExamination) -> Iterator[Finding]:
    for key in stale_sums(store, log.objects, newest_version=log.version):
        message = f"{key} is not the checksum of what {summed_key(key)} holds, or will hold"
        yield finding("stale_hadoop_sum", message, path=key)
