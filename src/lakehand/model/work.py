"""The values that pass between planning, tasks, proof and commit.

All of them survive a process boundary: `to_json` gives a plain dict, `from_json` takes it back.
"""

from __future__ import annotations

import operator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from lakehand.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import SupportsIndex

    from lakehand.model.order import Curve

Method = Literal["copy", "recode", "sort"]
ProofKind = Literal["digest", "ranges", "positions", "mixed", "counts"]
#: What is asked of a proof: rows read back; rows read back by another decoder; counts alone.
ProveMode = Literal["digest", "independent", "counts"]
#: How small files are grouped.
Strategy = Literal["greedy", "bin-packing", "sort-by-size"]
ChangeKind = Literal[
    "rewrite", "statistics", "append", "overwrite", "delete", "update", "restore", "metadata"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    """A live file that was chosen for work."""

    #: Decoded path: relative to the table's root, or absolute where the table says so.
    path: str
    bytes: int
    #: Physical rows; None where the table does not say.
    rows: int | None
    deleted_rows: int = 0
    #: What the format needs to read and to replace the file, as plain JSON values.
    native: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """A file that a task wrote and that no version refers to yet."""

    path: str
    bytes: int
    rows: int
    #: What the format needs to commit the file: partition values, statistics.
    native: Mapping[str, Any] = field(default_factory=dict)
    #: Where indexes and footer begin, and the checksum of both, if it was taken as they were made.
    tail: tuple[int, int] | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        tail = value.get("tail")
        return cls(**{**value, "tail": tuple(tail) if tail else None})


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Files that become new files together, in one task. All are of one partition."""

    id: int
    inputs: tuple[DataFile, ...]
    method: Method = "recode"
    #: Numbers of the inputs that a copy has to recode first: crumbs, and files with deleted rows.
    recoded: tuple[int, ...] = ()
    #: Why these files were chosen; shown to users.
    reason: str = ""
    #: Size each output aims for.
    target_file_bytes: int = 128 * 2**20
    #: Sort order, e.g. ("a DESC", "b"); empty if none.
    order: tuple[str, ...] = ()
    #: Along which the columns of the order are followed.
    curve: Curve = "linear"
    #: A plan of the format's own, for formats that plan themselves.
    native: Mapping[str, Any] = field(default_factory=dict)

    @property
    def input_bytes(self) -> int:
        return sum(file.bytes for file in self.inputs)

    @property
    def moved_bytes(self) -> int:
        """Those that a copy moves as they are."""
        if self.method != "copy":
            return 0
        return self.input_bytes - sum(self.inputs[number].bytes for number in self.recoded)

    def to_json(self) -> dict[str, Any]:
        # A group may have thousands of inputs, and `asdict` takes its time over each.
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
    #: Algorithm and engine: digests compare only where both are equal.
    algorithm: str
    engine: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{**value, "lanes": (int(value["lanes"][0]), int(value["lanes"][1]))})


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """Evidence that outputs hold the rows of inputs."""

    #: What was compared.
    kind: ProofKind
    #: Rows that are proved equal.
    rows: int
    #: Hexadecimal; null where the kind needs none.
    digest: str | None
    #: Bytes that were read back.
    bytes: int
    #: How the digest was computed: digests compare only where this and `engine` are equal.
    algorithm: str
    #: What computed it.
    engine: str
    #: Who decoded inputs and outputs, where these were two on purpose.
    decoders: str | None = None
    #: Rows that were meant to go: those before are these and the ones that are proved.
    removed_rows: int = 0
    #: Their digest; null where there are none.
    removed_digest: str | None = None
    #: Rows among the proved ones that were not there before.
    added_rows: int = 0
    #: Their digest; null where there are none, or where it holds only until they are committed.
    added_digest: str | None = None
    #: Of the positions of rows that went from files which stay; null where rows were compared.
    positions_digest: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupResult:
    """What one task made of one group, with the evidence that it holds the same rows."""

    group: int
    attempt: str
    outputs: tuple[StagedFile, ...]
    #: How it was made: a group that could not be copied was recoded.
    method: Method = "recode"
    proof: Proof | None = None
    #: Milliseconds by stage: read, write, prove.
    timings: Mapping[str, float] = field(default_factory=dict)
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
    """Files that leave the table together, and the files that hold their rows from then on."""

    group: int
    removes: tuple[DataFile, ...]
    adds: tuple[StagedFile, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Refreshed:
    """A file that stays in the table as it is, with statistics that were computed anew."""

    file: DataFile
    #: What the format stores of the file in place of what it had.
    native: Mapping[str, Any]
    #: Rows that were read for it.
    rows: int = 0
    #: Whether the table says all this already.
    is_known: bool = False


#: Greatest version of a transaction: other engines read a signed integer of 64 bits.
MAX_EPOCH = 2**63 - 1
_MAX_NAME_BYTES = 1024


def require_epoch(value: object) -> int:
    """Return the number of an epoch; ValidationError if it is none that a table can hold."""
    try:
        number = None if isinstance(value, bool) else operator.index(cast("SupportsIndex", value))
    except TypeError:
        number = None
    if number is None or not 0 <= number <= MAX_EPOCH:
        raise ValidationError(
            f"an epoch is an integer from 0 to {MAX_EPOCH}, and not {_short(value)}",
            field="epoch",
            value=_short(value),
            hint="nothing was written; count epochs from 0",
        )
    return number


def require_writer_name(value: object, *, field: str = "writer_id") -> str:
    """Return the name of a writer; ValidationError if no log can hold it."""
    problem = None
    if not isinstance(value, str):
        problem = f"must be a string, and not {_short(value)}"
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
    """The mark of an application in the table: commits with the same mark happen once."""

    application: str
    version: int

    def __post_init__(self) -> None:
        require_writer_name(self.application)
        object.__setattr__(self, "version", require_epoch(self.version))

    def is_in(self, transactions: Mapping[str, int]) -> bool:
        """Say whether a table whose newest versions by application are these has the mark."""
        return transactions.get(self.application, self.version - 1) >= self.version


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What one commit does to a table.

    A rewrite is made of `replacements` and a change of statistics of `refreshed`, which a conflict
    drops one by one. Other changes use `adds`, `removes` and `restored`, which stand or fall
    together.
    """

    kind: ChangeKind
    #: Version of the snapshot that the change was made from.
    base_version: int
    #: The verb, with what was asked for; or a name that users of the format know, as it is.
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    replacements: tuple[Replacement, ...] = ()
    refreshed: tuple[Refreshed, ...] = ()
    adds: tuple[StagedFile, ...] = ()
    removes: tuple[DataFile, ...] = ()
    #: Files of rows that went or came, for readers of changes; no version has them among its files.
    changes: tuple[StagedFile, ...] = ()
    #: Files that the table had before and that come back as they were.
    restored: tuple[DataFile, ...] = ()
    #: What the format stores of the table itself from this commit on, in its own words.
    native: tuple[Mapping[str, Any], ...] = ()
    transaction: Transaction | None = None
    #: `Snapshot.table_id` of the table that the change is for; None: whatever is there.
    table_id: str | None = None
    #: Whether the change depends on the rows it read (it then conflicts with rows added since).
    reads_rows: bool = False
    #: Whether the commit must not hold values of the rows in files that it removes.
    erases: bool = False
    #: Evidence by group (its id as text), as `Proof.to_json()`; the commit keeps the sum of it.
    proof: Mapping[str, Any] | None = None
    #: Numbers to store with the commit beside those that follow from its files.
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
class Receipt:
    """What a commit did."""

    version: int
    #: Groups that lost against concurrent writers and were left out.
    dropped: tuple[int, ...] = ()
    #: How often the commit was tried; every clean rebase is one more.
    attempts: int = 1
    #: Files that this commit added and removed.
    files_added: int = 0
    files_removed: int = 0
    #: The change's transaction was in the table before, at `version` or earlier: nothing was
    #: committed now. The table may refer to the change's files, so none of them may be deleted.
    already_committed: bool = False
