"""The table that a writer writes into: an existing one, or created with the first rows."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from lakehand import errors
from lakehand.expressions.evaluate import keep_true
from lakehand.expressions.predicate import Predicate, parse_predicate
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsAppends
from lakehand.formats.registry import detect_format, load_creating_format
from lakehand.model.table_head import Evolution, TableHead
from lakehand.schema.conform import Conformer
from lakehand.schema.evolution import DiffKind
from lakehand.sink.notify import notify_commit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lakehand.formats.worker import AppendWorker
    from lakehand.model.work import StagedFile
    from lakehand.settings import Settings
    from lakehand.storage import Store

T = TypeVar("T")
_FORMAT = "delta"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Schema and rules that rows are written for: the table's, or what their commit makes of it."""

    head: TableHead
    conformer: Conformer

    @classmethod
    def of(cls, head: TableHead) -> Layout:
        return cls(head=head, conformer=Conformer.of(head))


class Target:
    """A table as of the last time that its writer read it or committed."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        partition_by: tuple[str, ...] = (),
        properties: Mapping[str, str] | None = None,
        where: str | None = None,
        handle: FormatTable | None = None,
        evolves: bool = False,
    ) -> None:
        """`evolves`: the commit of these rows includes the schema change of `evolution`."""
        self.store = store
        self._settings = settings
        self._partition_by = partition_by
        self._properties = properties or {}
        self._where = where
        self._handle = None if handle is None else _appendable(handle)
        #: Defaults of the table's format; None: those of the settings that a caller has are right.
        self._defaults: Mapping[str, Any] | None = None
        self._head: TableHead | None = None
        self._layout: Layout | None = None
        self._takes_columns = evolves and settings.schema_evolution
        self._takes_wider_types = self._takes_columns and settings.type_widening
        #: Whether the rules of the table have changed since rows were fitted.
        self._has_moved = False
        #: Rows are fitted on one thread, and written and committed on another.
        self._lock = threading.RLock()
        self._overwritten: Predicate | None = None
        #: Version that the next change is made from.
        self.base_version = -1

    def __getstate__(self) -> dict[str, Any]:
        """Leave the lock out: each task has a copy with its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    def notify(self, version: int, files: Sequence[StagedFile]) -> None:
        """Tell the service that `notify_url` names of a commit, in the background."""
        size = sum(file.bytes for file in files)
        notify_commit(self._settings, self.store.url, version=version, files=len(files), size=size)

    @property
    def is_known(self) -> bool:
        """Whether the table was found or created."""
        return self._head is not None

    @property
    def handle(self) -> SupportsAppends:
        return _known(self._handle, self.store)

    @property
    def head(self) -> TableHead:
        return _known(self._head, self.store)

    @property
    def layout(self) -> Layout:
        """What new rows are written for."""
        return _known(self._layout, self.store)

    @property
    def conformer(self) -> Conformer:
        return self.layout.conformer

    def in_force(self, settings: Settings) -> Settings:
        """Return settings with the defaults of the table's format and the table's properties."""
        chosen = settings if self._defaults is None else settings.with_defaults(self._defaults)
        return chosen if self._head is None else chosen.with_properties(self._head.properties)

    def worker(self) -> AppendWorker:
        return self.handle.worker(self.layout.head)

    def find(self) -> bool:
        """Open the table, and say whether it exists."""
        if self._handle is None:
            try:
                found = detect_format(self.store)
            except errors.NotATableError:
                return False
            self._handle = _appendable(found.open(self.store, settings=self._settings))
            self._defaults = dict(found.defaults)
        self.refresh()
        return True

    def create(self, schema: pa.Schema) -> None:
        """Create the table; if another writer creates it at the same time, that one is opened."""
        table_format = load_creating_format(_FORMAT)
        try:
            created = table_format.create(
                self.store,
                schema,
                partition_by=self._partition_by,
                properties=self._properties,
                settings=self._settings,
            )
            self._handle = _appendable(created)
            self._defaults = dict(table_format.defaults)
            self.refresh()
        except errors.TableExistsError:
            self.find()

    def refresh(self) -> None:
        """Read the newest version; RefusedError if rows must not be added to such a table."""
        head = self.handle.head()
        self.handle.require("append", head)
        self._check_partitions(head)
        layout = Layout.of(head)
        with self._lock:
            self._has_moved |= self._head is not None and self._head.rules != head.rules
            self._head, self._layout = head, layout
            self.base_version = head.version
            if self._where is not None:
                self._overwritten = parse_predicate(self._where, head.schema)

    def require(self, schema: pa.Schema) -> None:
        """Raise SchemaMismatchError if no batch of `schema` could fit."""
        self._layout_for(schema).conformer.require(schema)

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the table wants them; SchemaMismatchError or ValidationError if it cannot.

        An overwrite of a part of the table takes no rows that belong to another part.
        """
        return self._fit(batch, self._choose_layout(batch.schema))

    def place(self, batch: pa.RecordBatch) -> tuple[Layout, pa.RecordBatch]:
        """Return how rows that were fitted are written now, and these rows as they are written.

        The table, or what it takes on, may have changed since.
        """
        layout = self.layout
        if layout.conformer.is_made(batch.schema) and not self._has_moved:
            return layout, batch
        layout = self._choose_layout(batch.schema)
        return layout, self._fit(batch, layout)

    def evolution(self, layout: Layout) -> Evolution | None:
        """Return what makes the table fit files of `layout`; None if they must be rewritten."""
        if layout.head.rules == self.head.rules:
            return Evolution(head=self.head)
        try:
            evolution = self.handle.evolve(self.head, layout.head.schema)
        except errors.RefusedError:
            return None
        return evolution if evolution.head.rules == layout.head.rules else None

    def adopt(self, evolution: Evolution, version: int) -> None:
        """Use the table as a commit of this writer has changed it."""
        with self._lock:
            self._head = replace(evolution.head, version=version)

    def forget(self) -> None:
        """Drop new columns of rows that were discarded."""
        with self._lock:
            if self._head is not None and self.layout.head.rules != self._head.rules:
                self._layout = Layout.of(self._head)

    def _choose_layout(self, schema: pa.Schema) -> Layout:
        with self._lock:
            self._layout = self._layout_for(schema)
            return self._layout

    def _layout_for(self, schema: pa.Schema) -> Layout:
        """Return the layout that rows of `schema` fit, if there may be one; else the known one."""
        layout = self.layout
        if not self._takes_columns:
            return layout
        diff = layout.conformer.diff(schema)
        is_allowed = diff.kind is DiffKind.NEW_COLUMNS or (
            self._takes_wider_types and diff.kind in {DiffKind.TYPE_WIDENING, DiffKind.MIXED}
        )
        if not is_allowed:
            return layout
        return Layout.of(self.handle.evolve(self.head, diff.evolved).head)

    def _fit(self, batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
        fitted = layout.conformer.conform(batch)
        if self._overwritten is not None:
            inside = keep_true(self._overwritten, fitted).num_rows
            if inside < fitted.num_rows:
                raise self._outside(fitted.num_rows - inside)
        return fitted

    def _outside(self, rows: int) -> errors.ValidationError:
        return errors.ValidationError(
            f"{rows:,} of these rows do not fulfil {self._where!r}, and so are not of the part of"
            f" {self.store.url} that is overwritten",
            field="where",
            value=self._where,
            hint="nothing of this batch was accepted; filter the rows, or widen the condition",
        )

    def _check_partitions(self, head: TableHead) -> None:
        wanted = [name.lower() for name in self._partition_by]
        if wanted and wanted != [name.lower() for name in head.partition_columns]:
            raise errors.SchemaMismatchError(
                f"{head.table} is partitioned by {list(head.partition_columns)}, and not by"
                f" {list(self._partition_by)}",
                table=head.table,
                difference=("partition columns",),
                hint="omit partition_by: rows are written to the table's own partitions",
            )


def _known(value: T | None, store: Store) -> T:
    if value is None:
        raise errors.NotATableError(
            f"there is no table at {store.url} yet",
            table=store.url,
            hint="it is created with the first rows, or at open if a schema is given",
        )
    return value


def _appendable(table: FormatTable) -> SupportsAppends:
    return require_support(table, SupportsAppends, operation="append")
