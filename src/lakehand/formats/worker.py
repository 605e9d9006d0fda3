"""What lakehand asks of a format where tasks run: rows read, files written and read back.

`FormatWorker` is the core that every format implements; the protocols below it are optional, as
those of `optional` are. Tasks that copy row groups load this module, so it imports little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    import pyarrow as pa

    from lakehand.errors import LakehandError
    from lakehand.model.order import Order, Term
    from lakehand.model.verification import Finding
    from lakehand.model.work import (
        DataFile,
        Group,
        ProveMode,
        Refreshed,
        ServerSideCopy,
        StagedFile,
    )
    from lakehand.parquet.composed_copy import MovableFile
    from lakehand.parquet.row_group_copy import Composition, Copied
    from lakehand.prove.digest import Digester
    from lakehand.settings import Settings

#: Parts of a task's memory that one row group may take: in a file, and as rows before.
_ROW_GROUP_SHARE, _ROWS_SHARE = 16, 10
_MAX_ROW_GROUP_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteSpec:
    """How files are written."""

    target_file_bytes: int
    #: None: the format decides (table property, else that of most inputs, else zstd 1).
    codec: str | None = None
    #: None: the format decides.
    codec_level: int | None = None
    #: Whether columns may have dictionaries, and pages statistics.
    has_dictionaries: bool = True
    has_page_statistics: bool = True
    row_group_bytes: int = 64 * 2**20
    row_group_rows: int = 512 * 1024
    #: Memory that the rows of one row group may take before they are encoded.
    group_memory_bytes: int = 256 * 2**20
    #: Row groups that may be encoded at once.
    threads: int = 1
    #: In which order rows come, where that is a linear one: files say so of their row groups.
    sorted_by: tuple[Term, ...] = ()
    #: Columns that get Bloom filters, and their target false-positive rate.
    bloom_columns: tuple[str, ...] = ()
    bloom_fpp: float = 0.01
    #: Whether files survive a power cut as soon as they are returned, or when they were handed to
    #: `make_durable` at the latest: a format may leave the waiting to those who have other work.
    is_durable: bool = True
    #: Whether the store moves row groups by itself.
    server_side_copy: ServerSideCopy = "never"

    @classmethod
    def of_tasks(cls, settings: Settings) -> Self:
        """Return how tasks write files; the size that a group's own files aim for is its own."""
        memory_bytes = settings.task_memory_bytes
        return cls(
            target_file_bytes=settings.target_file_bytes,
            codec=settings.codec,
            codec_level=settings.compression_level,
            has_dictionaries=settings.dictionary_encoding,
            has_page_statistics=settings.parquet_statistics == "page",
            bloom_columns=settings.bloom_columns,
            bloom_fpp=settings.bloom_fpp,
            row_group_bytes=min(memory_bytes // _ROW_GROUP_SHARE, _MAX_ROW_GROUP_BYTES),
            group_memory_bytes=memory_bytes // _ROWS_SHARE,
            server_side_copy=settings.server_side_copy,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskLimits:
    """What a task may use of the machine it runs on."""

    memory_bytes: int = 2 * 2**30
    threads: int = 1
    #: Local disk for copies of remote files and for spill.
    scratch_bytes: int = 64 * 2**30
    #: None: the system's directory for temporary files.
    scratch_directory: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return what `settings` grant; how many threads there are is said where a task runs."""
        return cls(
            memory_bytes=settings.task_memory_bytes,
            scratch_bytes=settings.scratch_bytes,
            scratch_directory=settings.scratch_directory,
        )


#: Who decodes files: DuckDB, and Arrow what DuckDB is not trusted with; or one of them alone.
Decoder = Literal["duckdb", "arrow", "only-duckdb"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoding:
    """Who decodes the inputs of a task, and who its outputs."""

    inputs: Decoder
    outputs: Decoder
    #: Whether the decoder of the outputs reads the inputs, too. Otherwise rows that are misread and
    #: written as such look like rows that are right.
    reads_inputs_twice: bool = False
    #: What the proof says of it; None where both are read alike.
    label: str | None = None
    #: What it says where nothing was written.
    alone: str | None = None


_FAST = (
    Decoding(inputs="duckdb", outputs="duckdb"),
    # Arrow reads more than DuckDB does, and says better what is wrong with a file.
    Decoding(inputs="arrow", outputs="arrow"),
)
_INDEPENDENT = (
    Decoding(
        inputs="only-duckdb", outputs="arrow", reads_inputs_twice=True, label="duckdb+arrow/arrow"
    ),
    # New files are plain: DuckDB may read them where it is not trusted with the old ones.
    Decoding(inputs="arrow", outputs="only-duckdb", label="arrow/duckdb", alone="arrow"),
)
#: In which order decoders are tried: the next one where a file cannot be decoded so.
DECODINGS: Mapping[ProveMode, tuple[Decoding, ...]] = {
    "digest": _FAST,
    "independent": _INDEPENDENT,
    "counts": _FAST,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedFile:
    """A file made of row groups of other files, byte for byte, with what its proof compares."""

    staged: StagedFile
    copied: Copied


@dataclass(frozen=True, kw_only=True, slots=True)
class Copies:
    """The result of copying row groups into one file."""

    files: tuple[CopiedFile, ...]
    #: What the footers of the inputs count, whichever of their row groups were moved.
    input_rows: int
    #: Files of which the store moved ranges by itself.
    moved: tuple[MovableFile, ...] = ()
    #: Why the store did not, where it might have; None if it did, or is not asked to.
    streamed_because: str | None = None

    @property
    def compositions(self) -> list[Composition]:
        """Files that the store composed."""
        found = (file.copied.composition for file in self.files)
        return [composition for composition in found if composition is not None]


class RowGroupCopier(Protocol):
    """Moves row groups. Picklable, and light: what decodes rows takes half a second to load."""

    def output_directory(self, like: Sequence[DataFile]) -> str | None:
        """Return the directory that `copy` writes into; None: it may be any."""
        ...

    def copy(
        self,
        inputs: Sequence[DataFile],
        *,
        target_file_bytes: int,
        stem: str,
        beside: Sequence[StagedFile] = (),
    ) -> AbstractContextManager[Copies]:
        """Move row groups of `inputs`, and of staged files, into new files byte for byte.

        Inside of the block the files can be read; behind it they are durable. Raises NotCopyable,
        before anything is written, if their bytes would not mean the same.
        """
        ...


class NotCopyable(Exception):  # noqa: N818  no failure: the group is recoded instead
    """The row groups of these files cannot be moved into one file; the message says why."""


class NotDecodable(Exception):  # noqa: N818  no failure: the group is read by Arrow instead
    """DuckDB gave up on a file, possibly after rows were handed out; the message says why."""


class NewFiles(Protocol):
    """Files that rows come to piece by piece. Their names start with the stem they were given.

    Leaving the block by an exception makes files vanish that were open; those before them stay.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @property
    def keys(self) -> list[str]:
        """What may be in storage by now: names of complete files and of those that are open."""
        ...

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, which have the columns and types of the table in its order."""
        ...

    def close(self) -> tuple[StagedFile, ...]:
        """Write what is left and return the files."""
        ...


class FormatWorker(Protocol):
    """A table as a task sees it: picklable, and bound to the snapshot it was made from.

    `decoder` says which decoder is used. A format with only one decoder ignores it, except for
    `require_any_decoder`: without a second decoder no proof may claim one.
    """

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table."""
        ...

    @property
    def moved_rows(self) -> pa.Schema:
        """Columns of rows that move to other files: those of the table, and their identity."""
        ...

    @property
    def streamed_rows(self) -> pa.Schema:
        """Columns of rows as `read_digested` streams them, and `write` takes them."""
        ...

    def read(
        self,
        inputs: Sequence[DataFile],
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        row_identity: bool = False,
    ) -> pa.RecordBatchReader:
        """Stream the visible rows of `inputs` under their logical names and current types.

        `row_identity` adds the identity of rows, where the table tracks it.
        """
        ...

    def read_digested(
        self,
        inputs: Sequence[DataFile],
        digester: Digester,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
        dictionaries: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Stream the visible rows of `inputs` with their identity, each counted in `digester`.

        Strings may come as `dictionaries`, for callers that only write them. Raises NotDecodable
        where only Arrow can read a file.
        """
        ...

    def digest_rows(
        self,
        inputs: Sequence[DataFile],
        digester: Digester,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count the visible rows of `inputs`, with their identity, in `digester`."""
        ...

    def digest_staged(
        self,
        files: Sequence[StagedFile],
        digester: Digester,
        *,
        limits: TaskLimits,
        decoder: Decoder = "duckdb",
    ) -> None:
        """Count the rows of written files in `digester`, as storage gives them back."""
        ...

    def count_rows(self, inputs: Sequence[DataFile]) -> int:
        """Count the visible rows of `inputs` by the metadata of the files, without reading rows."""
        ...

    def staged_difference(
        self, inputs: Sequence[DataFile], outputs: Sequence[StagedFile], /
    ) -> str | None:
        """Return what readers find different in `outputs`, though rows are equal; None: nothing."""
        ...

    def output_directory(self, like: Sequence[DataFile], /) -> str | None:
        """Return the directory that `write` writes into; None: it may be any."""
        ...

    def write(
        self,
        batches: Iterable[pa.RecordBatch],
        spec: WriteSpec,
        *,
        like: Sequence[DataFile],
        stem: str,
    ) -> tuple[StagedFile, ...]:
        """Write rows into new files whose names start with `stem`, in the partition of `like`."""
        ...


def undecodable(subject: str, reason: NotDecodable, prove: ProveMode) -> Exception:
    """Return what is raised where no decoder is left: ProofError if two of them were asked for."""
    from lakehand.errors import ProofError

    if prove != "independent":
        return reason
    return ProofError(
        f"{subject} has rows that only one decoder can read, so that no second one can prove them:"
        f" {reason}; nothing was changed",
        hint="run the operation with prove=digest",
    )


def require_any_decoder(decoder: Decoder, *, format_name: str) -> None:
    """Raise NotDecodable if only a second decoder may read rows, which the format does not have."""
    if decoder == "only-duckdb":
        raise NotDecodable(f"{format_name} files are read by one decoder alone")


@runtime_checkable
class ByteCopyWorker(Protocol):
    """The part of a worker that copies row groups byte for byte (`SupportsByteCopy`)."""

    def copier(self, spec: WriteSpec | None = None) -> RowGroupCopier:
        """Return what copies row groups from file to file, where they are as `spec` asks."""
        ...

    def codec_of(self, inputs: Sequence[DataFile]) -> str | None:
        """Return the codec of most bytes of `inputs`; None if nothing is compressed."""
        ...


@runtime_checkable
class DeferredSyncWorker(Protocol):
    """The part of a worker whose files become durable later than they are written.

    It honours `WriteSpec.is_durable`; files of other workers are durable when `write` returns.
    """

    def make_durable(self, files: Sequence[StagedFile]) -> None:
        """Return when files that were written would survive a power failure."""
        ...


@runtime_checkable
class NativeRewriteWorker(DeferredSyncWorker, Protocol):
    """The part of a worker that has the format rewrite files (`SupportsNativeRewrite`)."""

    def can_recode(self) -> bool:
        """Say whether groups for `run_native` may go through `write` as well, read only once."""
        ...

    def can_copy(self, inputs: Sequence[DataFile]) -> bool:
        """Say whether `run_native` can copy the bytes of `inputs`, and readers lose nothing."""
        ...

    def run_native(
        self, group: Group, /, *, stem: str, is_copied: bool = False
    ) -> tuple[StagedFile, ...]:
        """Rewrite a group as the format itself does it (`SupportsNativeRewrite.native_group`).

        The files may have names that do not start with `stem`, and are not durable yet. Where bytes
        are copied (`is_copied`), rows are still to be proved.
        """
        ...


@runtime_checkable
class SizeEstimateWorker(Protocol):
    """The part of a worker that can write rows elsewhere than into the table."""

    def rehearse(self, inputs: Sequence[DataFile], spec: WriteSpec, *, limits: TaskLimits) -> int:
        """Return the size that the rows of `inputs` have when they are rewritten.

        They are written to a temporary directory, which is then deleted. Raises NotDecodable where
        the fast decoder cannot read a file.
        """
        ...


@runtime_checkable
class OrderMarkingWorker(Protocol):
    """The part of a worker that records the order of rows in the entries of files."""

    def mark_ordered(
        self, files: Sequence[StagedFile], order: Order, *, unit: str
    ) -> tuple[StagedFile, ...]:
        """Record on files that their rows were sorted by `order` together, as `unit`."""
        ...


class StatisticsWorker(FormatWorker, Protocol):
    """A worker that computes statistics of files (`SupportsStatistics`)."""

    def refresh(
        self, files: Sequence[DataFile], *, accept_changes: bool = False
    ) -> Iterator[Refreshed | LakehandError]:
        """Recompute the statistics of files from their visible rows, one after the other.

        A file that cannot be read yields its error. So does one whose rows contradict the
        statistics that it has, because it may have been replaced, unless `accept_changes` is set.
        """
        ...


@runtime_checkable
class FileCheckWorker(Protocol):
    """The part of a worker that compares files in storage with what the table says of them."""

    def check_files(self, files: pa.Table) -> list[Finding]:
        """Check files, rows of `Snapshot.files`, as storage has them, without reading rows."""
        ...


class CheckWorker(FormatWorker, FileCheckWorker, Protocol):
    """A worker that checks files and rows (`SupportsVerification`)."""

    def check_rows(self, files: Sequence[DataFile]) -> Iterator[Finding]:
        """Decode all rows of files, and compare them with what the table says of them."""
        ...


class AppendWorker(FormatWorker, Protocol):
    """A worker that writes rows which are new to the table (`SupportsAppends`)."""

    def open_files(self, spec: WriteSpec, *, stem: str | Callable[[str], str]) -> NewFiles:
        """Open files for new rows of any partition.

        Their names start with `stem`, or with what it returns for their directory.
        """
        ...

    def read_staged(
        self, files: Sequence[StagedFile], *, row_identity: bool = False
    ) -> pa.RecordBatchReader:
        """Read files back from storage exactly as a reader of the committed table would."""
        ...
