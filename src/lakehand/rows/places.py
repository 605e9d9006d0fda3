"""Rows that are to go, by their places: kept in an exchange, and counted here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.model.work import DataFile
    from lakehand.rows.exchange import Exchange

__all__ = ["Places"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Rows of files that tasks found. Files have numbers, and those of a portion go together."""

    portions: Sequence[Sequence[int]]
    #: By number.
    files: Sequence[DataFile]
    #: What names the rows of each portion: tables with `file` and `position`.
    keys: Mapping[int, list[str]]
    #: Rows by file, where there are any.
    counts: Mapping[int, int]

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    def files_of(self, portion: int) -> list[int]:
        """Return the numbers of the files in a portion that lose rows."""
        return [number for number in self.portions[portion] if number in self.counts]

    def rows_of(self, portion: int, exchange: Exchange) -> pa.Table:
        """Return the places of a portion, in order."""
        found = pa.concat_tables(exchange.get(self.keys[portion]))
        return found.sort_by([("file", "ascending"), ("position", "ascending")])
