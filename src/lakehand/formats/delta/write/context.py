"""What a task must know of a table whose files it writes, rows or whole row groups."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import CorruptFileError, SchemaMismatchError
from lakehand.formats.delta.protocol.actions import integer_property
from lakehand.formats.delta.protocol.schema import (
    MappingMode,
    StructType,
    mapping_mode,
    physical_name,
)
from lakehand.formats.delta.statistics.merge import StatisticsRules, statistics_rules
from lakehand.parquet.footer_facts import check_row_count, check_size, read_facts_and_size
from lakehand.storage.location import is_safe_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.delta.log.snapshot import DeltaState
    from lakehand.formats.delta.protocol.schema import StructField
    from lakehand.model.work import DataFile
    from lakehand.parquet.footer_facts import FileFacts
    from lakehand.storage import Store

_NULL = "__HIVE_DEFAULT_PARTITION__"
#: What file systems take as one name, and what leaves room for a file's name where object stores
#: take 1,024 bytes.
_MOST_NAME_BYTES, _MOST_BYTES = 255, 700
# What Spark escapes in names and values of partition directories.
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}


def partition_directory(
    columns: Sequence[StructField],
    values: Mapping[str, str | None],
    *,
    mode: MappingMode,
    configuration: Mapping[str, str],
) -> str:
    """Return the directory, relative to the table's root; empty for the root itself.

    `values` are the raw partition values by physical name. Readers take nothing from the
    directory: with mapped columns, names would lie there, so files go to the root. So do those of
    values that are too long for a name, or that no path may hold.
    """
    if configuration.get("delta.randomizeFilePrefixes", "false").lower() == "true":
        length = integer_property(configuration, "delta.randomPrefixLength", 2)
        return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:length]
    if mode is not MappingMode.NONE:
        return ""
    parts = [
        f"{_escape(column.name)}={_escape(values.get(physical_name(column, mode=mode)) or _NULL)}"
        for column in columns
    ]
    directory = "/".join(parts)
    is_short = all(len(part.encode()) <= _MOST_NAME_BYTES for part in parts)
    is_short = is_short and len(directory.encode()) <= _MOST_BYTES
    return directory if is_short and is_safe_key(directory) else ""


def _escape(text: str) -> str:
    """Escape as Hive does.

    >>> _escape("2026-01-01 10:00:00")
    '2026-01-01 10%3A00%3A00'
    """
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


_PARALLEL_READS = 16


class KnownFacts:
    """Remembers the footers of the group of files that was asked for last.

    Files of a table never change, so what was read of them stays true. It is forgotten when it is
    sent to another process.
    """

    def __init__(self) -> None:
        self._paths: tuple[str, ...] = ()
        self._facts: list[FileFacts] = []

    def __reduce__(self) -> tuple[type[KnownFacts], tuple[()]]:
        return KnownFacts, ()

    def of(self, store: Store, files: Sequence[DataFile]) -> list[FileFacts]:
        """Return what the footers of `files` say, in their order.

        CorruptFileError if one is not the file that the table says.
        """
        paths = tuple(file.path for file in files)
        if paths != self._paths:
            with ThreadPoolExecutor(_PARALLEL_READS) as pool:
                self._facts = list(pool.map(lambda file: read_committed_facts(store, file), files))
            self._paths = paths
        return self._facts


def read_committed_facts(store: Store, file: DataFile) -> FileFacts:
    """Read the footer of `file`; CorruptFileError if its size or row count is another one."""
    facts, size = read_facts_and_size(*store.resolve(file.path))
    check_size(file.path, found=size, expected=file.bytes)
    if isinstance(facts, CorruptFileError):
        raise facts
    check_row_count(file.path, found=facts.rows, expected=file.rows)
    return facts


CODEC_PROPERTY = "delta.parquet.compression.codec"
_ROW_TRACKING = "delta.enableRowTracking"
_MATERIALIZE_FEATURE = "materializePartitionColumns"
_CODEC_NAMES = {"uncompressed": "none", "lz4_raw": "lz4", "lz4raw": "lz4"}


def codec_name(spelling: str) -> str:
    """Return one name for the spellings of a codec that settings, properties and footers have.

    >>> codec_name("LZ4_RAW"), codec_name("zstd")
    ('lz4', 'zstd')
    """
    return _CODEC_NAMES.get(spelling.lower(), spelling.lower())


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteContext:
    """What a task must know of a table to write files for it. Picklable."""

    store: Store
    schema: StructType
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    writer_features: frozenset[str]
    #: Physical paths.
    clustering_columns: tuple[tuple[str, ...], ...] = ()
    footers: KnownFacts = field(default_factory=KnownFacts, compare=False, repr=False)

    @classmethod
    def of(cls, state: DeltaState) -> Self:
        from lakehand.formats.delta.protocol.clustering import clustering_columns  # loads Arrow

        return cls(
            store=state.store,
            schema=state.schema,
            partition_columns=tuple(state.metadata.partition_columns),
            configuration=dict(state.metadata.configuration),
            writer_features=frozenset(state.protocol.writer_features or ()),
            clustering_columns=clustering_columns(state.domains),
        )

    @property
    def mode(self) -> MappingMode:
        return mapping_mode(self.configuration)

    @property
    def tracks_rows(self) -> bool:
        """Whether rows have an identity that must survive when they move to another file."""
        return self.configuration.get(_ROW_TRACKING, "false").lower() == "true"

    def statistics_rules(self) -> StatisticsRules:
        return statistics_rules(
            self.schema,
            self.configuration,
            mode=self.mode,
            partition_columns=self.partition_columns,
            clustering_columns=self.clustering_columns,
            writer_features=self.writer_features,
        )

    def partition_fields(self) -> list[StructField]:
        found = [self.schema.find(name) for name in self.partition_columns]
        return [column for column in found if column is not None]

    @property
    def holds_partition_columns(self) -> bool:
        """Whether new files must also contain the partition columns."""
        return _MATERIALIZE_FEATURE in self.writer_features

    def data_fields(self) -> list[StructField]:
        """Return the columns that files hold."""
        if self.holds_partition_columns:
            return list(self.schema.fields)
        names = {name.lower() for name in self.partition_columns}
        return [column for column in self.schema.fields if column.name.lower() not in names]


def output_directory(
    context: WriteContext,
    like: Sequence[DataFile],
    partition_values: Mapping[str, str | None] | None = None,
) -> str:
    """Return the directory that `write_files` writes into."""
    return partition_directory(
        context.partition_fields(),
        partition_values_of(context, like, partition_values),
        mode=context.mode,
        configuration=context.configuration,
    )


def partition_values_of(
    context: WriteContext,
    like: Sequence[DataFile],
    given: Mapping[str, str | None] | None = None,
) -> dict[str, str | None]:
    """Return the raw partition values, exactly as the files before spelled them.

    A value that is left out is null, and is spelled out from now on.
    """
    names = {physical_name(column, mode=context.mode) for column in context.partition_fields()}
    spelled: list[dict[str, Any]] = [
        dict.fromkeys(sorted(names)) | (file.native["add"].get("partitionValues") or {})
        for file in like
    ]
    values = spelled[0] if spelled else dict(given or {})
    if any(other != values for other in spelled):
        raise SchemaMismatchError("files of different partitions cannot become one file")
    if set(values) != names:
        raise SchemaMismatchError(
            f"partition values are given for {sorted(values)}, and needed for {sorted(names)}"
        )
    return values
