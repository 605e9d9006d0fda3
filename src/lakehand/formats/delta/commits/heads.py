"""The state that a commit starts from, read from scratch once and then rolled forward."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from lakehand.errors import ObjectNotFoundError
from lakehand.formats.delta.commits.head import Head
from lakehand.formats.delta.log.snapshot import load_state_at
from lakehand.formats.delta.protocol.actions import parse_commit
from lakehand.formats.delta.protocol.names import commit_key

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["Heads"]

#: More commits than this are no longer quicker to read one by one.
_MOST_COMMITS = 64


class Heads:
    """Heads of one table. A writer that commits often pays for the commits since its last one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[Head, bytes] | None = None

    @property
    def known(self) -> Head | None:
        """The head that was looked at last."""
        return self._known[0] if self._known is not None else None

    def at(self, version: int) -> Head:
        """Return the head that `version` is, or was."""
        rolled = self._roll_forward(version)
        if rolled is not None:
            return rolled
        head = Head.of(load_state_at(self._store, version=version))
        self.remember(head)
        return head

    def _roll_forward(self, version: int) -> Head | None:
        if self._known is None:
            return None
        known, text = self._known
        if not known.version <= version <= known.version + _MOST_COMMITS:
            return None
        versions = range(known.version, version + 1)
        try:
            found, *newer = self._store.get_many([commit_key(v) for v in versions])
        except ObjectNotFoundError:
            return None
        if found != text:
            # Another table has taken the place of the one that was read.
            return None
        commits = (parse_commit(v, data) for v, data in zip(versions[1:], newer, strict=True))
        head = reduce(Head.after, commits, known)
        self._known = (head, newer[-1] if newer else text)
        return head

    def remember(self, head: Head) -> None:
        """Take a head that was read otherwise, to start the next one from."""
        try:
            self._known = (head, self._store.get(commit_key(head.version)))
        except ObjectNotFoundError:
            # A checkpoint stands for the version; its own commit was cleaned away.
            self._known = None
