"""The table that a writer writes into: there already, or created with the first rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lakehand.errors import (
    NotATableError,
    SchemaMismatchError,
    TableExistsError,
    ValidationError,
)
from lakehand.expressions.evaluate import keep_true
from lakehand.expressions.predicate import parse_predicate
from lakehand.formats.registry import detect_format, load_format
from lakehand.sink.conform import Conformer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakehand.expressions.predicate import Predicate
    from lakehand.formats.base import FormatTable
    from lakehand.formats.worker import FormatWorker
    from lakehand.model.head import TableHead
    from lakehand.settings import Settings
    from lakehand.storage import Store

__all__ = ["Target"]

T = TypeVar("T")
_FORMAT = "delta"


class Target:
    """A table as its writer knows it: as of the last time that it looked or committed."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        partition_by: tuple[str, ...] = (),
        properties: Mapping[str, str] | None = None,
        where: str | None = None,
        handle: FormatTable | None = None,
    ) -> None:
        self.store = store
        self._settings = settings
        self._partition_by = partition_by
        self._properties = properties or {}
        self._where = where
        self._handle = handle
        self._head: TableHead | None = None
        self._conformer: Conformer | None = None
        self._overwritten: Predicate | None = None
        #: Version that the next change is made from.
        self.base_version = -1

    @property
    def is_known(self) -> bool:
        """Whether the table was found or created."""
        return self._head is not None

    @property
    def handle(self) -> FormatTable:
        return _known(self._handle, self.store)

    @property
    def head(self) -> TableHead:
        return _known(self._head, self.store)

    @property
    def conformer(self) -> Conformer:
        return _known(self._conformer, self.store)

    def worker(self) -> FormatWorker:
        return self.handle.worker(self.head)

    def find(self) -> bool:
        """Look for the table, and say whether it is there."""
        if self._handle is None:
            try:
                found = detect_format(self.store)
            except NotATableError:
                return False
            self._handle = found.open(self.store, settings=self._settings)
        self.refresh()
        return True

    def create(self, schema: pa.Schema) -> None:
        """Create the table; one that another writer creates meanwhile is as good."""
        try:
            self._handle = load_format(_FORMAT).create(
                self.store,
                schema,
                partition_by=self._partition_by,
                properties=self._properties,
                settings=self._settings,
            )
            self.refresh()
        except TableExistsError:
            self.find()

    def refresh(self) -> None:
        """Read the newest version; RefusedError if rows must not be added to such a table."""
        head = self.handle.head()
        self.handle.require("append", head)
        self._check_partitions(head)
        self._head = head
        self.base_version = head.version
        self._conformer = Conformer(head.schema, table=head.table, explicit=head.explicit_columns)
        if self._where is not None:
            self._overwritten = parse_predicate(self._where, head.schema)

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the table wants them; SchemaMismatchError or ValidationError if it cannot.

        An overwrite of a part of the table takes no rows that belong to another part.
        """
        fitted = self.conformer.conform(batch)
        if self._overwritten is not None:
            inside = keep_true(self._overwritten, fitted).num_rows
            if inside < fitted.num_rows:
                raise self._outside(fitted.num_rows - inside)
        return fitted

    def _outside(self, rows: int) -> ValidationError:
        return ValidationError(
            f"{rows:,} of these rows do not fulfil {self._where!r}, and so are not of the part of"
            f" {self.store.url} that is overwritten",
            field="where",
            value=self._where,
            hint="nothing of this batch was taken; filter the rows, or widen the condition",
        )

    def _check_partitions(self, head: TableHead) -> None:
        wanted = [name.lower() for name in self._partition_by]
        if wanted and wanted != [name.lower() for name in head.partition_columns]:
            raise SchemaMismatchError(
                f"{head.table} is partitioned by {list(head.partition_columns)}, and not by"
                f" {list(self._partition_by)}",
                table=head.table,
                difference=("partition columns",),
                hint="leave partition_by out: a table is written as it is partitioned",
            )


def _known(value: T | None, store: Store) -> T:
    if value is None:
        raise NotATableError(
            f"there is no table at {store.url} yet",
            table=store.url,
            hint="it is created with the first rows, or at open if a schema is given",
        )
    return value
