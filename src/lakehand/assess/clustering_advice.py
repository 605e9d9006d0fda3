"""Recommends clustering columns, measured on a sample of rows.

Candidates are single columns, then pairs, then extensions of the best ones. Each one sorts the
sample, the sample is divided into as many files as the table would have, and the queries are
evaluated on these files. So a proposal has a measured number, not a guess.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from lakehand.assess.query_workload import AskedQueries, FixedQuestions, asked_columns, read_queries
from lakehand.formats.base import FormatTable, require_support
from lakehand.formats.optional import SupportsStatistics
from lakehand.model.notebook_view import NotebookView
from lakehand.model.order import Curve, Order, parse_terms
from lakehand.model.quantities import format_count
from lakehand.observe import reported
from lakehand.planning.file_bounds import value_bounds
from lakehand.sorting.ordering import orderable_columns
from lakehand.sorting.virtual_files import Sample, sample_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakehand.assess.query_workload import Questions, Workload
    from lakehand.model.snapshot import Snapshot
    from lakehand.settings import Settings

Verdict = Literal["cluster", "already_good", "too_small", "nothing_to_order"]

_SEED = 5
_SAMPLED_ROWS = 64 * 1024
#: Maximum number of rows, and of files, that are read for the sample.
_READ_ROWS, _READ_FILES = 8 * 2**20, 256
#: With fewer rows, sampled files have smaller value ranges than real ones.
_ROWS_PER_FILE = 32
_MAX_FILES = 1024
#: Without queries: number of columns that are sampled, as many as tables have statistics of, and of
#: those that are used, because they have most distinct values.
_MAX_EXAMINED, _MAX_QUERIED = 32, 8
#: Number of columns that are tried, the most frequently queried first.
_MAX_COLUMNS = 6
_MAX_TOGETHER = 4
#: Number of column sets that are extended by one more, and for which other curves are tried.
_BEST = 3
_SHOWN = 8
#: A smaller improvement is not worth a rewrite; of two sets of columns, the smaller one wins.
_WORTH = 0.05
_TIE = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """One way to cluster the table."""

    #: The columns, for `cluster --by`.
    columns: tuple[str, ...]
    #: The curve, for `cluster --curve`.
    curve: Curve
    #: Fraction of the files that the queries would skip, measured on the sample.
    skip_rate: float
    #: Improvement over the current files.
    improvement: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedColumn:
    """A column that was tried."""

    #: Name of the column.
    column: str
    #: Fraction of the queries that filter by it; null without queries.
    asked: float | None
    #: Distinct values in the sample.
    distinct_values: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice(NotebookView):
    """Recommended clustering of a table. Fields have the names of the JSON document."""

    #: URL of the table, without credentials.
    table: str
    #: The version that was examined.
    version: int
    #: `cluster`, or why not: `already_good`, `too_small`, `nothing_to_order`.
    verdict: Verdict
    #: The verdict as text.
    message: str
    #: Fraction of the files that the queries skip now.
    skip_rate: float
    #: Proposed clusterings, the best first.
    proposals: tuple[Proposal, ...] = ()
    #: Columns that were tried.
    columns: tuple[AskedColumn, ...] = ()
    #: Source of the queries: `queries`, or `fixed` without a file of queries.
    questions: Literal["queries", "fixed"] = "fixed"
    #: Number of queries evaluated.
    question_count: int = 0
    #: Statements in the file of queries.
    statement_count: int = 0
    #: Number of statements that were not used, by reason.
    unused_statements: dict[str, int]
    #: Rows in the sample.
    sampled_rows: int = 0
    #: Files that the sample was divided into.
    sampled_files: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the document that `lakehand advise --json` prints."""
        return asdict(self)


@reported
def advise(table: FormatTable, *, settings: Settings, queries: str | None = None) -> Advice:
    """Try clusterings on a sample of the latest version; `queries` is SQL for `read_queries`."""
    require_support(table, SupportsStatistics, operation="statistics")
    newest = table.snapshot()
    name = newest.table.rstrip("/").rpartition("/")[2]
    workload = read_queries(queries, table_name=name, schema=newest.schema) if queries else None
    columns = _relevant(newest.schema, workload)
    snapshot = table.snapshot(version=newest.version, statistics=columns)
    settings = settings.with_properties(snapshot.properties)
    sample = _sample(table, snapshot, columns)
    trial = _trial(snapshot, sample, workload, target_bytes=settings.target_file_bytes)
    return _advice(snapshot, trial, workload)


def _relevant(schema: pa.Schema, workload: Workload | None) -> list[str]:
    """Return the columns to examine: those of the queries, or the first ones of the table."""
    known = orderable_columns(schema)
    if workload is None:
        return list(known)[:_MAX_EXAMINED]
    return [name for name in asked_columns(workload, schema) if name in known]


def _sample(table: FormatTable, snapshot: Snapshot, columns: Sequence[str]) -> Sample:
    if not columns:
        return Sample.of(pa.table({}), {}, ())
    chosen = _chosen_files(snapshot.files)
    wanted = [*columns, *snapshot.partition_columns]
    order = Order(terms=parse_terms(wanted))
    inputs = table.data_files(snapshot, chosen)
    rows = sample_rows(table.worker(snapshot), inputs, order, rows=_SAMPLED_ROWS)
    paths = {term.column: term.path for term in order.terms}
    return Sample.of(rows, paths, snapshot.partition_columns)


def _chosen_files(files: pa.Table) -> list[int]:
    """Choose files at random, until they have enough rows."""
    by_lot = np.random.default_rng(_SEED).permutation(files.num_rows)[:_READ_FILES]
    rows = np.from_dlpack(files["rows"].fill_null(0).combine_chunks())[by_lot]
    before = np.cumsum(rows) - rows
    return sorted(int(row) for row in by_lot[before < _READ_ROWS])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Trial:
    """Queries, columns and number of files of the trials."""

    sample: Sample
    questions: Questions
    #: Columns to try, the most promising first.
    columns: tuple[AskedColumn, ...]
    #: Files that the table would have.
    file_count: int

    def rates(self, orders: Sequence[Order]) -> dict[Order, float]:
        rows = self.sample.rows.num_rows
        count = max(1, min(self.file_count, _MAX_FILES, rows // _ROWS_PER_FILE))
        layouts = [self.sample.files(order, count) for order in orders]
        return dict(zip(orders, self.questions.skip_rates(layouts), strict=True)) if orders else {}


def _trial(
    snapshot: Snapshot, sample: Sample, workload: Workload | None, *, target_bytes: int
) -> _Trial:
    values = {name: ranked.values for name, ranked in sample.columns.items()}
    movable = {
        name: len(ranked.found_at)
        for name, ranked in sample.columns.items()
        if len(ranked.found_at) > 1 and name not in snapshot.partition_columns
    }
    questions: Questions
    if workload is None:
        asked = dict.fromkeys(sorted(movable, key=lambda name: -movable[name])[:_MAX_QUERIED])
        questions = FixedQuestions.over({name: values[name] for name in asked})
    else:
        queried = AskedQueries.of(workload, snapshot.schema, values)
        total = sum(queried.weights)
        asked = {name: weight / total for name, weight in queried.columns.items()}
        questions = queried
    columns = [
        AskedColumn(column=name, asked=share, distinct_values=movable[name])
        for name, share in asked.items()
        if name in movable
    ]
    total_bytes = int(np.from_dlpack(snapshot.files["bytes"].combine_chunks()).sum())
    return _Trial(
        sample=sample,
        questions=questions,
        columns=tuple(columns[:_MAX_COLUMNS]),
        file_count=-(-total_bytes // target_bytes),
    )


def _advice(snapshot: Snapshot, trial: _Trial, workload: Workload | None) -> Advice:
    [now] = trial.questions.skip_rates([snapshot.files]) if snapshot.files.num_rows else [0.0]
    rates = _tried(trial) if trial.columns and trial.file_count > 1 else {}
    proposals = tuple(
        Proposal(columns=order.columns, curve=order.curve, skip_rate=rate, improvement=rate - now)
        for order, rate in _ranked(rates)[:_SHOWN]
    )
    verdict, message = _verdict(trial, proposals, now)
    blind = _files_without_bounds(snapshot, [each.column for each in trial.columns])
    if blind and proposals:
        message += f"; {format_count(blind, 'file')} without statistics: run `statistics` first"
    return Advice(
        table=snapshot.table,
        version=snapshot.version,
        verdict=verdict,
        message=message,
        skip_rate=now,
        proposals=proposals,
        columns=trial.columns,
        questions="fixed" if workload is None else "queries",
        question_count=trial.questions.count,
        statement_count=0 if workload is None else workload.statement_count,
        unused_statements={} if workload is None else workload.unused,
        sampled_rows=trial.sample.rows.num_rows,
        sampled_files=max(1, min(trial.file_count, _MAX_FILES)),
    )


def _files_without_bounds(snapshot: Snapshot, columns: Sequence[str]) -> int:
    """Count files without bounds in some column, which no query can skip."""
    unknown = np.zeros(snapshot.file_count, np.bool_)
    for column in columns:
        bounds = value_bounds(snapshot.files, column)
        missing = np.from_dlpack(bounds.low.is_null().cast(pa.uint8())).astype(np.bool_)
        unknown |= missing & ~bounds.is_empty
    return int(np.count_nonzero(unknown))


def _tried(trial: _Trial) -> dict[Order, float]:
    """Try single columns, pairs, extensions of the best ones, and other curves for those."""
    names = [each.column for each in trial.columns]
    rates = trial.rates([_order([name], "linear") for name in names])
    rates |= trial.rates([_order(pair, "hilbert") for pair in combinations(names, 2)])
    for size in range(3, _MAX_TOGETHER + 1):
        rates |= trial.rates(list(_extended(rates, names, size=size)))
    best = [order for order, _ in _ranked(rates) if len(order.terms) > 1][:_BEST]
    others = [_order(order.columns, curve) for order in best for curve in ("zorder", "linear")]
    others += [_order(order.columns[::-1], "linear") for order in best if len(order.terms) == 2]  # noqa: PLR2004
    return rates | trial.rates(others)


def _extended(rates: dict[Order, float], names: Sequence[str], *, size: int) -> Iterator[Order]:
    found = set()
    smaller = [order for order, _ in _ranked(rates) if len(order.terms) == size - 1][:_BEST]
    for order in smaller:
        for name in names:
            together = tuple(sorted({*order.columns, name}, key=names.index))
            if len(together) == size and together not in found:
                found.add(together)
                yield _order(together, "hilbert")


def _order(columns: Sequence[str], curve: Curve) -> Order:
    return Order(terms=parse_terms(columns), curve=curve)


def _ranked(rates: dict[Order, float]) -> list[tuple[Order, float]]:
    """Sort by skip rate; if it is about the same, fewer columns come first."""
    return sorted(
        rates.items(), key=lambda item: (-round(item[1] / _TIE), len(item[0].terms), -item[1])
    )


def _verdict(trial: _Trial, proposals: Sequence[Proposal], now: float) -> tuple[Verdict, str]:
    if trial.file_count <= 1:
        return "too_small", "the table fits into one file: there is nothing to skip"
    if not proposals:
        return "nothing_to_order", "no queried column can be sorted and has distinct values"
    best = proposals[0]
    if best.improvement < _WORTH:
        return "already_good", (
            f"queries skip {now:.0%} of the files now, and {best.skip_rate:.0%} at best: not"
            " worth a rewrite"
        )
    named = ", ".join(best.columns)
    return "cluster", (
        f"by {named} ({best.curve}): queries would skip {best.skip_rate:.0%} of the files, now"
        f" {now:.0%}"
    )
