"""A fixed set of probe queries, and the fraction of files that they skip.

The set is drawn once, from quantiles of the columns, with a constant seed: ten points, ten ranges
of 1 % and ten of 10 % of the rows for each column, and the same for each pair of columns. The
probes are the same before and after a rewrite, and for any layout, so that skip rates are
comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import and_
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from lakehand.expressions.literals import literal
from lakehand.planning.file_bounds import dense_ranks, extent_of_ranks, value_bounds
from lakehand.planning.quantiles import STEPS, quantiles_of_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

Kind = Literal["point", "1%", "10%"]

_SEED = 5
_PROBES_PER_KIND = 10
#: Steps of the quantiles that a probe of each kind spans.
_SPANS: Mapping[Kind, int] = {"point": 0, "1%": STEPS // 100, "10%": STEPS // 10}
_CHUNK_FILES = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One probe: the rows whose values are in one range of each of its columns."""

    kind: Kind
    #: For each column, the index of its range in the set.
    ranges: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeSet:
    """The probes of a table: drawn once, and evaluated before and after."""

    #: Bounds of the ranges of each column, both inclusive.
    low: Mapping[str, pa.Array]
    high: Mapping[str, pa.Array]
    probes: tuple[Probe, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.low)

    def to_sql(self) -> list[str]:
        """Return the probes as SQL predicates."""
        return [
            " AND ".join(self._term(column, at) for column, at in probe.ranges.items())
            for probe in self.probes
        ]

    def _term(self, column: str, at: int) -> str:
        low, high = literal(self.low[column][at].as_py()), literal(self.high[column][at].as_py())
        return f"{column} BETWEEN {low} AND {high}"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SkipRate:
    """Fractions that min/max statistics skip, averaged over the probes."""

    #: Fraction of the files.
    files: float
    #: Fraction of the bytes.
    bytes: float
    #: Fraction of the files by probe, in the order of the set.
    by_probe: NDArray[np.float64]


def probes_of_bounds(files: pa.Table, columns: Sequence[str]) -> ProbeSet:
    """Draw the probes of a table from its bounds; columns without bounds have none."""
    rows = np.from_dlpack(files["rows"].fill_null(1).combine_chunks()).astype(np.int64)
    found = {column: quantiles_of_bounds(value_bounds(files, column), rows) for column in columns}
    return draw_probes({column: values for column, values in found.items() if len(values)})


def draw_probes(quantiles: Mapping[str, pa.Array]) -> ProbeSet:
    """Draw the probes from quantiles of each column: STEPS + 1 values, ascending."""
    random = np.random.default_rng(_SEED)
    kinds = [kind for kind in _SPANS for _ in range(_PROBES_PER_KIND)]
    spans = np.array([_SPANS[kind] for kind in kinds])
    starts = {column: random.integers(0, STEPS - spans, endpoint=True) for column in quantiles}
    low = {name: values.take(pa.array(starts[name])) for name, values in quantiles.items()}
    high = {name: values.take(pa.array(starts[name] + spans)) for name, values in quantiles.items()}
    return ProbeSet(low=low, high=high, probes=tuple(_probes(tuple(quantiles), kinds)))


def _probes(columns: Sequence[str], kinds: Sequence[Kind]) -> Iterator[Probe]:
    for column in columns:
        yield from (Probe(kind=kind, ranges={column: number}) for number, kind in enumerate(kinds))
    # Ranges were drawn column by column, so ranges with equal indexes are independent.
    for pair in combinations(columns, 2):
        yield from (
            Probe(kind=kind, ranges=dict.fromkeys(pair, number))
            for number, kind in enumerate(kinds)
        )


def skip_rate(files: pa.Table, probes: ProbeSet) -> SkipRate:
    """Return the fractions of `files` that statistics alone skip for the probes of the set.

    Without files, or without probes, nothing is skipped.
    """
    sizes = np.from_dlpack(files["bytes"].combine_chunks()).astype(np.float64)
    if not len(sizes) or not probes.probes:
        return SkipRate(files=0.0, bytes=0.0, by_probe=np.zeros(len(probes.probes)))
    ranges = {column: _Ranges(files, probes, column) for column in probes.columns}
    counts, weights = np.zeros(len(probes.probes)), np.zeros(len(probes.probes))
    for start in range(0, len(sizes), _CHUNK_FILES):
        chunk = slice(start, start + _CHUNK_FILES)
        masks = {column: each.may_hold(chunk) for column, each in ranges.items()}
        for index, probe in enumerate(probes.probes):
            is_read = reduce(and_, (masks[column][at] for column, at in probe.ranges.items()))
            counts[index] += np.count_nonzero(is_read)
            weights[index] += sizes[chunk][is_read].sum()
    by_probe = 1 - counts / len(sizes)
    skipped_bytes = 1 - weights / sizes.sum() if sizes.sum() else by_probe
    return SkipRate(
        files=float(by_probe.mean()), bytes=float(skipped_bytes.mean()), by_probe=by_probe
    )


class _Ranges:
    """The files and the probe ranges of one column, as ranks."""

    def __init__(self, files: pa.Table, probes: ProbeSet, column: str) -> None:
        bounds = value_bounds(files, column)
        sides = [bounds.low, bounds.high, probes.low[column], probes.high[column]]
        ranks, count = dense_ranks(pa.concat_arrays([side.cast(sides[0].type) for side in sides]))
        self._files = extent_of_ranks(bounds, ranks, rank_count=count)
        self._low, self._high = np.split(ranks[2 * files.num_rows :], 2)

    def may_hold(self, chunk: slice) -> Flags:
        """Return for each range which files of the chunk may contain a value in it."""
        low, high = self._files.low[chunk], self._files.high[chunk]
        begun, left = low <= self._high[:, None], high >= self._low[:, None]
        masks: Flags = begun & left & (low <= high)
        return masks
