"""Merges: the source is gathered on disk, joined with the table, and gets in in one commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakehand.errors import ValidationError
from lakehand.model.reports import MergeReport
from lakehand.observe import reported
from lakehand.observe.steps import Step, reached
from lakehand.rows.merge_clauses import MergeClause
from lakehand.rows.merge_into import MergeRequest, merge
from lakehand.rows.merge_source import MergeSource
from lakehand.schema.arrow_input import as_reader, kept_schema
from lakehand.sink.one_call import RowChangeCall
from lakehand.sink.staging import Spool
from lakehand.sink.upserting import RowStaging, RowWriting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.work import StagedFile
    from lakehand.rows.merge_clauses import MergeSpec
    from lakehand.rows.upsert import Mark, Upserted
    from lakehand.runs.operation import Call
    from lakehand.settings import Settings
    from lakehand.sink.target import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Merging(RowWriting[MergeSource]):
    """How a source is merged into a table."""

    spec: MergeSpec
    operation: str = "merge"

    def _change(
        self,
        incoming: MergeSource,
        call: Call,
        *,
        parameters: Mapping[str, Any] | None,
        mark: Mark | None,
    ) -> Upserted:
        request = MergeRequest(
            spec=self.spec, source=incoming, head=self.target.head, fit=self.target.fit
        )
        return merge(self.target.handle, request, call=call, parameters=parameters, mark=mark)


class MergeStaging(RowStaging[MergeSource]):
    """The source of one merge, on this machine's disk."""

    def __init__(self, target: Target, name: str, schema: pa.Schema, settings: Settings) -> None:
        super().__init__(target)
        _require_names(schema)
        self._name = name
        self._schema = kept_schema(schema)
        self._spool = Spool(self._schema, directory=settings.scratch_directory)
        self._source: MergeSource | None = None

    @property
    def incoming(self) -> MergeSource:
        """The source; no more rows can be added."""
        if self._source is None:
            # By their places: the source may have a column that is called as their number is.
            rows = self._spool.table()
            self._source = MergeSource(self._name, rows.select(range(rows.num_columns - 1)))
        return self._source

    @property
    def holds_changes(self) -> bool:
        """Whether there is anything to do: rows may change because no row of the source matches."""
        return True

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows of the source."""
        try:
            self._spool.add(batch.cast(self._schema))
        except pa.ArrowException as error:
            reason = str(error).partition("\n")[0]
            raise ValidationError(
                f"rows of the source cannot be taken: {reason}",
                field="source",
                hint="nothing was written; cast the column",
            ) from error
        reached(Step.SINK_WRITING)

    def finish(self) -> tuple[StagedFile, ...]:
        """Write what is left of the source to disk; files are written with the commit."""
        _ = self.incoming
        reached(Step.SINK_STAGED)
        return ()

    def discard(self) -> None:
        """Forget the source."""
        self._source = None
        self._spool.close()

    def let_go(self) -> None:
        """Forget the source: files that a version may refer to were written by their own run."""
        self.discard()


def _require_names(schema: pa.Schema) -> None:
    """Refuse a source of whose columns two have one name: which one is meant is not known."""
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            message = f"the source has more than one column named {name!r}"
            raise ValidationError(message, field="source", value=name, hint="rename one of them")
        seen.add(name.lower())


@dataclass(kw_only=True, slots=True)
class GivenRows:
    """The source of a merge, as it was given."""

    #: Rows, or a function that returns them.
    data: Any
    is_read: bool = field(default=False, init=False)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows; ValidationError for a stream that was read already.

        It would be empty, and all rows of the table would be without a match.
        """
        if isinstance(self.data, pa.RecordBatchReader) and self.is_read:
            raise ValidationError(
                "the source of this merge is a stream that was read already",
                field="source",
                hint="nothing was written; begin another merge with the rows again",
            )
        self.is_read = True
        return as_reader(self.data() if callable(self.data) else self.data)


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeCall(RowChangeCall):
    """Options of a merge that are not settings."""

    spec: MergeSpec


@reported
def merge_once(
    table: FormatTable, given: GivenRows, *, settings: Settings, call: MergeCall
) -> MergeReport:
    """Merge the rows that are given into the table."""
    call.spec.require_clauses()
    begun = call.begin(table, settings, operation="merge")
    if begun.is_in_table:
        return MergeReport(**begun.unchanged(), operation="merge", on=call.spec.on)
    rows = given.reader()
    staging = MergeStaging(begun.target, call.spec.source, rows.schema, settings)
    report = begun.commit(Merging(**begun.writing, spec=call.spec), staging, rows)
    assert isinstance(report, MergeReport)  # noqa: S101  it is what a merge reports
    return report


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeBuilder:
    """A merge, as `Table.merge` begins it. Each clause returns a new builder.

    Clauses of a kind are tried in their order, and the first whose `condition` is true decides over
    a row; without a condition a clause decides over all rows that reach it. Expressions and
    conditions are Spark SQL, and name columns of the table `t` and of the source `s`, or of the
    aliases that were given.
    """

    handle: FormatTable
    source: GivenRows
    settings: Settings
    call: MergeCall

    def when_matched_update(
        self,
        set: Mapping[str, str],  # noqa: A002
        *,
        condition: str | None = None,
    ) -> MergeBuilder:
        """Update rows that match: `set` has an SQL expression for each column that changes."""
        return self._with(kind="matched", action="update", condition=condition, values=dict(set))

    def when_matched_update_all(
        self, *, condition: str | None = None, except_columns: Sequence[str] = ()
    ) -> MergeBuilder:
        """Update all columns of rows that match from the source's columns of the same names."""
        return self._with(
            kind="matched",
            action="update",
            condition=condition,
            except_columns=tuple(except_columns),
        )

    def when_matched_delete(self, *, condition: str | None = None) -> MergeBuilder:
        """Delete rows that match."""
        return self._with(kind="matched", action="delete", condition=condition)

    def when_not_matched_insert(
        self, values: Mapping[str, str], *, condition: str | None = None
    ) -> MergeBuilder:
        """Insert rows of the source that match no row; other columns are null, or defaults."""
        return self._with(
            kind="not_matched", action="insert", condition=condition, values=dict(values)
        )

    def when_not_matched_insert_all(
        self, *, condition: str | None = None, except_columns: Sequence[str] = ()
    ) -> MergeBuilder:
        """Insert rows of the source that match no row, all columns by their names."""
        return self._with(
            kind="not_matched",
            action="insert",
            condition=condition,
            except_columns=tuple(except_columns),
        )

    def when_not_matched_by_source_update(
        self,
        set: Mapping[str, str],  # noqa: A002
        *,
        condition: str | None = None,
    ) -> MergeBuilder:
        """Update rows of the table that match no row of the source."""
        return self._with(
            kind="not_matched_by_source", action="update", condition=condition, values=dict(set)
        )

    def when_not_matched_by_source_delete(self, *, condition: str | None = None) -> MergeBuilder:
        """Delete rows of the table that match no row of the source."""
        return self._with(kind="not_matched_by_source", action="delete", condition=condition)

    def execute(self) -> MergeReport:
        """Run the merge as one atomic commit.

        MultipleMatchesError if several rows of the source match a row that a clause changes, unless
        the only WHEN MATCHED clause deletes without a condition.
        """
        return merge_once(self.handle, self.source, settings=self.settings, call=self.call)

    def with_clause(self, clause: MergeClause) -> MergeBuilder:
        """Add a clause."""
        return replace(self, call=replace(self.call, spec=self.call.spec.with_clause(clause)))

    def _with(self, **clause: Any) -> MergeBuilder:
        return self.with_clause(MergeClause(**clause))
