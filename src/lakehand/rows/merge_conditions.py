"""The conditions of a merge over pairs of rows, compiled where they are evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakehand.errors import PredicateError
from lakehand.expressions.predicate import Predicate, parse_predicate
from lakehand.expressions.two_tables import (
    TwoTableCalculator,
    conjuncts_of,
    unqualified,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import numpy.typing as npt
    import pyarrow as pa

    from lakehand.rows.merge_clauses import ClauseKind, MergeSpec

    #: The number of the clause that decides over a row; -1: none does.
    Clauses = npt.NDArray[np.int16]

_ASKS_FOR_THE_TIME = re.compile(r"now|current_", re.IGNORECASE)


class Decisions:
    """Which clause of a kind decides over a row: the first one whose condition holds."""

    def __init__(self, spec: MergeSpec, kind: ClauseKind, calculator: TwoTableCalculator) -> None:
        self._calculator = calculator
        self._branches: list[str] = []
        for number, clause in spec.of_kind(kind):
            text = "true" if clause.condition is None else clause.condition
            condition = calculator.condition(text, what=f"the condition of {clause.text}")
            self._branches.append(f"WHEN {condition} THEN {number}")

    def __bool__(self) -> bool:
        return bool(self._branches)

    def of(self, values: Mapping[str, pa.Array], *, rows: int) -> Clauses:
        """Return the number of the clause for each row."""
        if not rows or not self._branches:
            return np.full(rows, -1, np.int16)
        # A condition is not evaluated for rows that an earlier one decided over: it may fail there.
        first = f"CAST(CASE {' '.join(self._branches)} ELSE -1 END AS SMALLINT)"
        [found] = self._calculator.compute_values([first], values, rows=rows)
        clauses: Clauses = found.to_numpy()
        return clauses


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeConditions:
    """The conditions over rows of the target, in the types in which they are searched. Picklable.

    Functions of the current time have one value for the whole merge.
    """

    spec: MergeSpec
    target: pa.Schema
    source: pa.Schema
    now: datetime

    def pairs(self) -> PairConditions:
        """Compile the conditions over pairs of rows."""
        return PairConditions(self.spec, self.over_both())

    def over_both(self) -> TwoTableCalculator:
        """Return a calculator over pairs of rows that has compiled nothing yet."""
        tables = {self.spec.target: self.target, self.spec.source: self.source}
        return TwoTableCalculator(tables, now=self.now)

    def alone(self, kind: ClauseKind) -> tuple[TwoTableCalculator, Decisions]:
        """Compile the conditions over rows of one table that match no row of the other."""
        spec = self.spec
        tables = (
            {spec.target: self.target}
            if kind == "not_matched_by_source"
            else {spec.source: self.source}
        )
        calculator = TwoTableCalculator(tables, now=self.now)
        return calculator, Decisions(spec, kind, calculator)

    def on_target(self) -> list[Predicate]:
        """Return conditions on the target alone that every row that matches fulfils."""
        calculator, spec = self.pairs().calculator, self.spec
        texts = conjuncts_of(spec.on, spec.target, calculator)
        return [found for text in texts if (found := _on_files(text, self.target)) is not None]

    def not_matched_by_source(self) -> list[Predicate] | None:
        """Return conditions of which a row fulfils one if it changes without a match.

        None: there is no such condition that files could be chosen by.
        """
        calculator, _ = self.alone("not_matched_by_source")
        found = []
        for _, clause in self.spec.of_kind("not_matched_by_source"):
            text = clause.condition and unqualified(clause.condition, calculator)
            predicate = _on_files(text, self.target) if text else None
            if predicate is None:
                return None
            found.append(predicate)
        return found


def _on_files(text: str, schema: pa.Schema) -> Predicate | None:
    """Return a condition that files are pruned by; None if statistics say nothing of it."""
    if _ASKS_FOR_THE_TIME.search(text):
        return None  # The time of the merge is not the time at which this is parsed.
    try:
        return parse_predicate(text, schema)
    except PredicateError:
        return None  # For example, it reads no column.


class PairConditions:
    """The join condition, and the clauses for rows that match."""

    def __init__(self, spec: MergeSpec, calculator: TwoTableCalculator) -> None:
        self.calculator = calculator
        self._spec = spec
        #: SQL over the references of both tables.
        self.on = calculator.condition(spec.on, what="the join condition")
        if calculator.lists:
            raise PredicateError(
                "the join condition has an IN list that is too long",
                value=spec.on,
                hint="move it to the conditions of the clauses",
            )
        self.decisions = Decisions(spec, "matched", calculator)

    def references(self, table: str) -> Sequence[str]:
        """Return the names under which the columns of one table are read."""
        paths = self.calculator.references
        return [f"v{index}" for index, path in enumerate(paths) if path[0] == table]
