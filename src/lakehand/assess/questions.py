"""Questions to files, with weights: those of queries, or the fixed set where there are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from lakehand.expressions.literals import literal
from lakehand.expressions.predicate import parse_predicate
from lakehand.expressions.pruning import may_match
from lakehand.model.snapshot import column_text
from lakehand.planning.probes import draw_probes, skip_rate
from lakehand.planning.quantiles import STEPS, quantiles_of_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakehand.assess.queries import Query, Workload
    from lakehand.expressions.predicate import Predicate
    from lakehand.planning.probes import ProbeSet

__all__ = ["AskedQueries", "FixedQuestions", "Questions", "asked_columns"]

#: Of more different queries the rarest are left out.
_MOST_QUERIES = 100
#: Values that stand for those which the other side of a join holds, as parts of all rows.
_JOINED_PARTS = (0.15, 0.5, 0.85)


def asked_columns(workload: Workload, schema: pa.Schema) -> list[str]:
    """Return the columns that queries ask for or join by, those of frequent queries first."""
    found = []
    for query in list(workload.queries)[:_MOST_QUERIES]:
        if query.predicate:
            references = parse_predicate(query.predicate, schema).references
            found += [column_text(path) for path in references]
        found += query.joined
    return list(dict.fromkeys(found))


class Questions(Protocol):
    """What files are asked."""

    @property
    def count(self) -> int: ...

    def skip_rates(self, layouts: Sequence[pa.Table]) -> list[float]:
        """Return the share of files that is skipped, for each of several layouts."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FixedQuestions:
    """The same questions to every table, drawn from the values of its columns."""

    probes: ProbeSet

    @classmethod
    def over(cls, columns: Mapping[str, pa.Array]) -> FixedQuestions:
        found = {name: quantiles_of_values(values) for name, values in columns.items()}
        return cls(probes=draw_probes({name: each for name, each in found.items() if len(each)}))

    @property
    def count(self) -> int:
        return len(self.probes.probes)

    def skip_rates(self, layouts: Sequence[pa.Table]) -> list[float]:
        return [skip_rate(files, self.probes).files for files in layouts]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AskedQueries:
    """The conditions of queries, each as often as it is asked."""

    predicates: tuple[Predicate, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(
        cls, workload: Workload, schema: pa.Schema, values: Mapping[str, pa.Array]
    ) -> AskedQueries:
        """Take the queries of `workload`; `values` are those of columns that it joins by."""
        frequent = list(workload.queries.items())[:_MOST_QUERIES]
        asked = [
            (parse_predicate(text, schema), count / len(texts))
            for query, count in frequent
            for texts in [list(_texts(query, values))]
            for text in texts
        ]
        return cls(
            predicates=tuple(predicate for predicate, _ in asked),
            weights=tuple(weight for _, weight in asked),
        )

    @property
    def count(self) -> int:
        return len(self.predicates)

    @property
    def columns(self) -> dict[str, float]:
        """How often each column is asked for: those of a query share its weight."""
        found: dict[str, float] = {}
        for predicate, weight in zip(self.predicates, self.weights, strict=True):
            for path in predicate.references:
                name = column_text(path)
                found[name] = found.get(name, 0.0) + weight
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def skip_rates(self, layouts: Sequence[pa.Table]) -> list[float]:
        # All layouts at once: asking costs more than answering.
        everything = pa.concat_tables(layouts)
        ends = np.cumsum([files.num_rows for files in layouts])
        rates = np.zeros(len(layouts))
        for predicate, weight in zip(self.predicates, self.weights, strict=True):
            is_read = np.from_dlpack(may_match(predicate, everything).cast(pa.uint8()))
            parts = np.split(is_read, ends[:-1])
            rates += [weight * (1 - part.mean()) if len(part) else 0.0 for part in parts]
        total = sum(self.weights)
        return [float(rate / total) for rate in rates] if total else [0.0] * len(layouts)


def _texts(query: Query, values: Mapping[str, pa.Array]) -> Iterator[str]:
    """Yield the conditions of a query; a join asks for the values of the other side in turn."""
    own = [query.predicate] if query.predicate else []
    joined = [column for column in query.joined if column in values]
    if not joined:
        yield from own
        return
    for part in _JOINED_PARTS:
        points = (f"{name} = {_value_at(values[name], part)}" for name in joined)
        yield " AND ".join([*own, *points])


def _value_at(values: pa.Array, part: float) -> str:
    quantiles = quantiles_of_values(values)
    return literal(quantiles[round(part * STEPS)].as_py() if len(quantiles) else None)
