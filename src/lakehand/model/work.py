"""Values that pass between planning, tasks, proof and commit.

All of them can be sent to another process: `to_json` returns a plain dict, `from_json` reads it.
"""

from __future__ import annotations

import operator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, cast

from lakehand.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lakehand.model.order import Curve

Method = Literal["copy", "recode", "sort"]
ProofKind = Literal["digest", "ranges", "checksums", "positions", "mixed", "counts"]
#: How outputs are proved: rows read back; rows read back by another decoder; row counts only.
ProveMode = Literal["digest", "independent", "counts"]
#: Whether S3 copies row groups by itself: if it can, always (or the call fails), or never.
ServerSideCopy = Literal["auto", "always", "never"]
#: How small files are grouped.
Strategy = Literal["greedy", "bin-packing", "sort-by-size"]
ChangeKind = Literal[
    "rewrite", "statistics", "append", "overwrite", "delete", "update", "restore", "metadata"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    """A live file that was selected for an operation."""

    #: Decoded path: relative to the table's root, or absolute if the table has it so.
    path: str
    bytes: int
    #: Physical rows; None if the table does not record it.
    rows: int | None
    deleted_rows: int = 0
    #: What the format needs to read and replace the file, as JSON values.
    native: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """A file that a task wrote and that no version references yet."""

    path: str
    bytes: int
    rows: int
    #: What the format needs to commit the file: partition values, statistics.
    native: Mapping[str, Any] = field(default_factory=dict)
    #: Offset of the page indexes and footer, and the checksum of both, if computed while writing.
    tail: tuple[int, int] | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        tail = value.get("tail")
        return cls(**{**value, "tail": tuple(tail) if tail else None})


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Files of one partition that are rewritten together, in one task."""

    id: int
    inputs: tuple[DataFile, ...]
    method: Method = "recode"
    #: Indexes of the inputs that a copy must re-encode first: very small files, and files with
    #: deleted rows.
    recoded: tuple[int, ...] = ()
    #: Why these files were selected; shown to users.
    reason: str = ""
    #: Target size of each output.
    target_file_bytes: int = 128 * 2**20
    #: Sort order, e.g. ("a DESC", "b"); empty if none.
    order: tuple[str, ...] = ()
    #: The curve by which the columns of the order are combined.
    curve: Curve = "linear"
    #: The plan of formats that plan rewrites themselves.
    native: Mapping[str, Any] = field(default_factory=dict)

    @property
    def input_bytes(self) -> int:
        return sum(file.bytes for file in self.inputs)

    @property
    def moved_bytes(self) -> int:
        """Bytes that a copy moves unchanged."""
        if self.method != "copy":
            return 0
        return self.input_bytes - sum(self.inputs[number].bytes for number in self.recoded)

    def to_json(self) -> dict[str, Any]:
        # A group may have thousands of inputs, and `asdict` is slow for each.
        named = {name: getattr(self, name) for name in self.__slots__}
        return {**named, "inputs": [file.to_json() for file in self.inputs]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        inputs = tuple(DataFile.from_json(file) for file in value["inputs"])
        lists = {name: tuple(value[name]) for name in ("recoded", "order")}
        return cls(**{**value, **lists, "inputs": inputs})


@dataclass(frozen=True, kw_only=True, slots=True)
class Digest:
    """Order-independent fingerprint of a set of rows: a count and two 64-bit sums."""

    rows: int
    lanes: tuple[int, int]
    #: Algorithm and engine: digests are comparable only if both are equal.
    algorithm: str
    engine: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{**value, "lanes": (int(value["lanes"][0]), int(value["lanes"][1]))})


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """Evidence that outputs hold the rows of the inputs."""

    #: What was compared.
    kind: ProofKind
    #: Rows that are proved equal.
    rows: int
    #: Hexadecimal; null if the kind needs none.
    digest: str | None
    #: Bytes that were compared.
    bytes: int
    #: How the digest was computed: digests are comparable only if this and `engine` are equal.
    algorithm: str
    #: Engine that computed it.
    engine: str
    #: Decoders of inputs and outputs, if two different ones were used on purpose.
    decoders: str | None = None
    #: Rows removed on purpose: the rows before are these plus the proved ones.
    removed_rows: int = 0
    #: Their digest; null if there are none.
    removed_digest: str | None = None
    #: New rows among the proved ones.
    added_rows: int = 0
    #: Their digest; null if there are none, or if it is valid only until they are committed.
    added_digest: str | None = None
    #: Digest of the positions of rows removed from files that stay; null if rows were compared.
    positions_digest: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupResult:
    """The result of one task for one group, with the proof that it holds the same rows."""

    group: int
    attempt: str
    outputs: tuple[StagedFile, ...]
    #: How it was rewritten: a group that could not be copied was re-encoded.
    method: Method = "recode"
    proof: Proof | None = None
    #: Milliseconds by stage: read, write, prove.
    timings: Mapping[str, float] = field(default_factory=dict)
    #: Bytes that the store moved by itself.
    moved_in_store_bytes: int = 0
    #: Why a copy on S3 was streamed through the task.
    streamed_because: str | None = None
    #: `LakehandError.to_json()` of a typed failure; None if the group succeeded.
    failure: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        outputs = tuple(StagedFile.from_json(file) for file in value["outputs"])
        proof = Proof.from_json(value["proof"]) if value["proof"] else None
        return cls(**{**value, "outputs": outputs, "proof": proof})


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """Files that are removed together, and the files that replace them with the same rows."""

    group: int
    removes: tuple[DataFile, ...]
    adds: tuple[StagedFile, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Refreshed:
    """A file that stays in the table, with recomputed statistics."""

    file: DataFile
    #: The new metadata of the file, in the terms of the format.
    native: Mapping[str, Any]
    #: Rows that were read for it.
    rows: int = 0
    #: Whether the table has these statistics already.
    is_known: bool = False


#: Maximum transaction version: other engines read a signed 64-bit integer.
MAX_EPOCH = 2**63 - 1
_MAX_NAME_BYTES = 1024


def require_epoch(value: object) -> int:
    """Return the number of an epoch; ValidationError if a table cannot store it."""
    try:
        number = None if isinstance(value, bool) else operator.index(cast("SupportsIndex", value))
    except TypeError:
        number = None
    if number is None or not 0 <= number <= MAX_EPOCH:
        raise ValidationError(
            f"an epoch must be an integer from 0 to {MAX_EPOCH}, not {_short(value)}",
            field="epoch",
            value=_short(value),
            hint="nothing was written; count epochs from 0",
        )
    return number


def require_writer_name(value: object, *, field: str = "writer_id") -> str:
    """Return the name of a writer; ValidationError if a log cannot store it."""
    problem = None
    if not isinstance(value, str):
        problem = f"must be a string, not {_short(value)}"
    elif not value.strip():
        problem = "must not be empty"
    elif any("\ud800" <= character <= "\udfff" for character in value):
        problem = "must be valid Unicode"
    elif len(value.encode()) > _MAX_NAME_BYTES:
        problem = f"must have at most {_MAX_NAME_BYTES} bytes"
    if problem is not None or not isinstance(value, str):
        raise ValidationError(f"{field} {problem}", field=field, value=_short(value))
    return value


def _short(value: object) -> str:
    return ascii(value)[:60]


@dataclass(frozen=True, kw_only=True, slots=True)
class Transaction:
    """The transaction id of an application: commits with the same id and version happen once."""

    application: str
    version: int

    def __post_init__(self) -> None:
        require_writer_name(self.application)
        object.__setattr__(self, "version", require_epoch(self.version))

    def is_in(self, transactions: Mapping[str, int]) -> bool:
        """Say whether a table whose newest versions by application are these has the mark."""
        return transactions.get(self.application, self.version - 1) >= self.version


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeSpan:
    """Versions whose changes are read, both ends included; None: the latest version."""

    from_version: int | None = None
    to_version: int | None = None
    #: Instead of a version: the first at this time or later.
    from_timestamp: datetime | None = None
    #: Instead of a version: the last until this time.
    to_timestamp: datetime | None = None
    #: Whether rows are read under the latest columns in any case, and not under those of the end.
    under_latest: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PropertyWish:
    """What is to change in a table's properties: one of these."""

    #: Properties to set.
    set: Mapping[str, object] = field(default_factory=dict)
    #: Features to add to the protocol.
    features: tuple[str, ...] = ()
    #: Properties to remove.
    unset: tuple[str, ...] = ()
    #: Whether properties to remove may be missing.
    if_exists: bool = False
    #: Clustering columns to declare; empty: none.
    cluster_by: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What one commit does to a table.

    A rewrite has `replacements` and an update of statistics has `refreshed`; conflicting ones are
    dropped one by one. Other changes use `adds`, `removes` and `restored`, which are committed
    together or not at all.
    """

    kind: ChangeKind
    #: Version of the snapshot that the change was made from.
    base_version: int
    #: The operation with its arguments; or a name in the terms of the format, unchanged.
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    replacements: tuple[Replacement, ...] = ()
    refreshed: tuple[Refreshed, ...] = ()
    adds: tuple[StagedFile, ...] = ()
    removes: tuple[DataFile, ...] = ()
    #: Change data files with deleted and inserted rows, for change data feed readers; they are not
    #: data files of any version.
    changes: tuple[StagedFile, ...] = ()
    #: Files of an earlier version that are added again unchanged.
    restored: tuple[DataFile, ...] = ()
    #: Table metadata of this commit, in the terms of the format.
    native: tuple[Mapping[str, Any], ...] = ()
    transaction: Transaction | None = None
    #: `Snapshot.table_id` of the table that the change is for; None: not checked.
    table_id: str | None = None
    #: Whether the change depends on the rows it read (it then conflicts with rows added since).
    reads_rows: bool = False
    #: Whether the commit must not contain values of the rows in files that it removes.
    erases: bool = False
    #: Proofs by group (its id as a string), as `Proof.to_json()`; the commit stores their sum.
    proof: Mapping[str, Any] | None = None
    #: Metrics to store in the commit in addition to those computed from its files.
    metrics: Mapping[str, int] = field(default_factory=dict)

    @property
    def all_adds(self) -> tuple[StagedFile, ...]:
        replacing = (file for group in self.replacements for file in group.adds)
        return (*self.adds, *replacing)

    @property
    def all_removes(self) -> tuple[DataFile, ...]:
        replaced = (file for group in self.replacements for file in group.removes)
        return (*self.removes, *replaced)


@dataclass(frozen=True, kw_only=True, slots=True)
class PropertyPlan:
    """A change of properties, and what the table is like after it."""

    change: Change
    properties: Mapping[str, str]
    features: tuple[str, ...]
    clustering_columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """The result of a commit."""

    version: int
    #: Groups that were dropped because of conflicts with concurrent writers.
    dropped: tuple[int, ...] = ()
    #: Number of commit attempts; every rebase is one more.
    attempts: int = 1
    #: Files that this commit added and removed.
    files_added: int = 0
    files_removed: int = 0
    #: The change's transaction was already in the table, at `version` or earlier: nothing was
    #: committed now. The table may reference the change's files, so none of them may be deleted.
    already_committed: bool = False
