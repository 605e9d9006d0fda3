"""Names and paths of files, as a Delta log spells them and as storage knows them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import quote, unquote

from lakehand.errors import CorruptLogError
from lakehand.storage.location import Location, key_inside, parse_location

#: Where a file of a snapshot keeps further spellings of its path that the log has entries for.
OTHER_PATHS = "other_paths"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LOCAL_URL = "file:///"
# Characters that engines do not encode; everything else becomes %XX.
_BARE = "/=:@+-._~!$&'()*,;"


def encode_path(decoded: str) -> str:
    """Return the spelling of a decoded path for the log.

    >>> encode_path("p=a%3Ab/part 1.parquet")
    'p=a%253Ab/part%201.parquet'
    """
    encoded = quote(decoded, safe=_BARE)
    first, slash, rest = encoded.partition("/")
    if is_absolute(decoded) or ":" not in first:
        return encoded
    # A colon in the first segment of a relative path would read as the end of a scheme.
    return first.replace(":", "%3A") + slash + rest


def decode_path(raw: str) -> str:
    """Return the one name of the file that `raw` of the log names.

    A local URL with an empty authority and the bare absolute path are the same file; `file:/x` is
    kept apart from both, because that is how the reference implementation reconciles files.
    """
    try:
        decoded = unquote(raw, errors="strict") if "%" in raw else raw
    except UnicodeDecodeError as error:
        message = f"the log names a file whose path is not UTF-8 when decoded: {raw!r}"
        raise CorruptLogError(message, path=raw) from error
    if decoded.startswith(_LOCAL_URL):
        return decoded[len(_LOCAL_URL) - 1 :]
    return decoded


def path_in_table(decoded: str, table: str) -> str:
    """Return the one name of a file, whichever way a log spells it, in the table at URL `table`.

    An absolute path that leads into the table becomes relative to its root.

    >>> path_in_table("s3://lake/events/p=1/a.parquet", "s3://lake/events")
    'p=1/a.parquet'
    """
    if not is_absolute(decoded):
        return decoded
    return key_inside(decoded, _location(table)) or decoded


@lru_cache(maxsize=64)
def _location(table: str) -> Location:
    return parse_location(table)


def is_absolute(path: str) -> bool:
    """Say whether a path names a file by scheme or from the root, and not within the table."""
    return path.startswith("/") or _SCHEME.match(path) is not None


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
