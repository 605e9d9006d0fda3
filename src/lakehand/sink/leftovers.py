"""Files that a writer left when it died, deleted by the next one under its id.

A file of an epoch is named after the sink that wrote it and after the epoch. Once the next sink
has committed epoch k, where the table had epochs up to e before, no version names a file of an
epoch after e and up to k that an earlier sink wrote, and none ever will: a commit of such an epoch
would carry a mark that the table has passed. All others are left to vacuum, and so is what a
sink that is not dead after all has just begun to write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.formats.base import FormatTable

__all__ = ["Leftovers", "epoch_label"]

_NAME = re.compile(r"lakehand-(?P<session>[0-9a-f]{32})-(?P<epoch>\d{10})-[^/]*")


def epoch_label(epoch: int) -> str:
    """Return the part of a file's name that tells its epoch."""
    return f"{epoch:010d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftovers:
    """What sinks that did not end well may have left."""

    #: Those sinks.
    sessions: frozenset[str]
    #: Newest epoch that the table had when they were gone; None if none.
    after: int | None
    #: Epoch that was committed since.
    upto: int
    #: Version that the table had before: a file that a later one names stays, whatever was thought.
    version: int

    def delete(self, table: FormatTable) -> int:
        """Delete them, and return how many there were. Looks into the log once more before."""
        found = list(self._find(table))
        if not found:
            return 0
        named = table.protected_since(version=self.version)
        kept = {*named.keys.to_pylist(), *named.names.to_pylist()}
        doomed = [key for key in found if key not in kept and key.rpartition("/")[2] not in kept]
        return len(doomed) - len(table.store.delete(doomed))

    def _find(self, table: FormatTable) -> Iterator[str]:
        for info in table.store.list():
            match = _NAME.fullmatch(info.key.rpartition("/")[2])
            if match and match["session"] in self.sessions and self._is_past(int(match["epoch"])):
                yield info.key

    def _is_past(self, epoch: int) -> bool:
        return (-1 if self.after is None else self.after) < epoch <= self.upto
