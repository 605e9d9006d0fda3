"""Names of the files in a Delta log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "LAST_CHECKPOINT_KEY",
    "LOG_DIRECTORY",
    "SIDECAR_DIRECTORY",
    "CheckpointKind",
    "CheckpointName",
    "ChecksumName",
    "CommitName",
    "CompactionName",
    "LogName",
    "classic_checkpoint_key",
    "commit_key",
    "parse_log_name",
    "sidecar_key",
    "v2_checkpoint_key",
    "version_prefix",
]

LOG_DIRECTORY = "_delta_log"
SIDECAR_DIRECTORY = f"{LOG_DIRECTORY}/_sidecars"
LAST_CHECKPOINT_KEY = f"{LOG_DIRECTORY}/_last_checkpoint"

CheckpointKind = Literal["classic", "multipart", "v2"]

_COMMIT = re.compile(r"([0-9]+)\.json")
_CHECKSUM = re.compile(r"([0-9]+)\.crc")
_COMPACTION = re.compile(r"([0-9]+)\.([0-9]+)\.compacted\.json")
_CLASSIC = re.compile(r"([0-9]+)\.checkpoint\.parquet")
_MULTIPART = re.compile(r"([0-9]+)\.checkpoint\.([0-9]+)\.([0-9]+)\.parquet")
_V2 = re.compile(r"([0-9]+)\.checkpoint\.([^./]+)\.(json|parquet)")


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitName:
    """`V.json`: the actions of one version."""

    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChecksumName:
    """`V.crc`: what another engine counted at one version."""

    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionName:
    """`X.Y.compacted.json`: the actions of versions X to Y, reconciled."""

    first: int
    last: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointName:
    """A file that holds the state of one version, or a part of that state."""

    version: int
    kind: CheckpointKind
    extension: Literal["json", "parquet"] = "parquet"
    #: Number of this part and of all parts; counted from one.
    part: int = 1
    parts: int = 1
    #: What tells V2 checkpoints of one version apart.
    unique: str | None = None


LogName = CommitName | ChecksumName | CompactionName | CheckpointName


def version_prefix(version: int) -> str:
    """Return the start of every name in the log that belongs to `version`."""
    return f"{LOG_DIRECTORY}/{version:020d}"


def commit_key(version: int) -> str:
    return f"{version_prefix(version)}.json"


def classic_checkpoint_key(version: int) -> str:
    return f"{version_prefix(version)}.checkpoint.parquet"


def v2_checkpoint_key(version: int, unique: str, extension: str) -> str:
    return f"{version_prefix(version)}.checkpoint.{unique}.{extension}"


def sidecar_key(path: str) -> str:
    """Return the key of a sidecar; its directories may stand in its path, and are always these."""
    return f"{SIDECAR_DIRECTORY}/{path.rpartition('/')[2]}"


def parse_log_name(name: str) -> LogName | None:
    """Return what a file name (or key) in the log says; None for names that mean nothing to us.

    >>> parse_log_name("_delta_log/00000000000000000007.json")
    CommitName(version=7)
    """
    bare = name.removeprefix(f"{LOG_DIRECTORY}/")
    if match := _COMMIT.fullmatch(bare):
        return CommitName(version=int(match[1]))
    if match := _CHECKSUM.fullmatch(bare):
        return ChecksumName(version=int(match[1]))
    if match := _COMPACTION.fullmatch(bare):
        first, last = int(match[1]), int(match[2])
        return CompactionName(first=first, last=last) if first < last else None
    return _parse_checkpoint_name(bare)


def _parse_checkpoint_name(bare: str) -> CheckpointName | None:
    if match := _CLASSIC.fullmatch(bare):
        return CheckpointName(version=int(match[1]), kind="classic")
    if match := _MULTIPART.fullmatch(bare):
        version, part, parts = (int(group) for group in match.groups())
        in_range = 1 <= part <= parts
        name = CheckpointName(version=version, kind="multipart", part=part, parts=parts)
        return name if in_range else None
    if match := _V2.fullmatch(bare):
        extension: Literal["json", "parquet"] = "json" if match[3] == "json" else "parquet"
        return CheckpointName(
            version=int(match[1]), kind="v2", extension=extension, unique=match[2]
        )
    return None
