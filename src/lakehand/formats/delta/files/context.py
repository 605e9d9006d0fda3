"""What a task must know of a table whose files it writes, rows or whole row groups of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from lakehand.errors import SchemaMismatchError
from lakehand.formats.delta.files.known_facts import KnownFacts
from lakehand.formats.delta.files.placement import partition_directory
from lakehand.formats.delta.files.statistics_rules import statistics_rules
from lakehand.formats.delta.protocol.schema import (
    MappingMode,
    StructType,
    mapping_mode,
    physical_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.delta.files.statistics_rules import StatisticsRules
    from lakehand.formats.delta.log.snapshot import DeltaState
    from lakehand.formats.delta.protocol.schema import StructField
    from lakehand.model.work import DataFile
    from lakehand.storage import Store

__all__ = [
    "CODEC_PROPERTY",
    "ROW_ID_PROPERTY",
    "ROW_VERSION_PROPERTY",
    "WriteContext",
    "codec_name",
    "output_directory",
    "partition_values_of",
]

CODEC_PROPERTY = "delta.parquet.compression.codec"
#: Where files hold the identity of their rows.
ROW_ID_PROPERTY = "delta.rowTracking.materializedRowIdColumnName"
ROW_VERSION_PROPERTY = "delta.rowTracking.materializedRowCommitVersionColumnName"
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
        """Whether new files must hold partition columns beside the others."""
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
