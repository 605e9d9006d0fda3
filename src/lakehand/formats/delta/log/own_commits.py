"""Notices when another writer overwrites a commit of this process after it was confirmed.

Writers without put-if-absent do that, and nothing in the log tells. Every listing of the log has
the sizes of its commits, so the comparison costs no request; a commit of the same size is not
noticed.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Mapping

_logger = get_logger(__name__)
_MAX_TABLES = 1000
_MAX_COMMITS = 100


class OwnCommits:
    """The sizes of the latest commits of this process, by table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, OrderedDict[int, int]] = OrderedDict()

    def remember(self, table: str, version: int, size: int) -> None:
        with self._lock:
            if version == 0:  # another table was at this place before
                self._tables.pop(table, None)
            commits = self._tables.setdefault(table, OrderedDict())
            commits[version] = size
            self._tables.move_to_end(table)
            if len(commits) > _MAX_COMMITS:
                commits.popitem(last=False)
            if len(self._tables) > _MAX_TABLES:
                self._tables.popitem(last=False)

    def compare(self, table: str, sizes: Mapping[int, int]) -> None:
        """Log an error for each commit that is in the log with another size, once."""
        with self._lock:
            known = self._tables.get(table)
            if not known:
                return
            changed = [v for v, size in known.items() if sizes.get(v, size) != size]
            for version in changed:
                del known[version]
        for version in changed:
            log_event(
                _logger,
                logging.ERROR,
                "commit_overwritten",
                "Version %d of %s was committed by this process and is now another commit: a writer"
                " that does not use put-if-absent has overwritten it, and its changes are lost",
                version,
                table,
                table=table,
                version=version,
            )


OWN_COMMITS = OwnCommits()
