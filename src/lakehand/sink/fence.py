"""Who writes under a writer id now: the one who opened a sink under it last.

The table itself keeps epochs from being written twice. But a second writer that was given the same
id by mistake would find its first epochs in the table, and drop rows that nobody has. So each sink
leaves its name beside the table when it begins, and looks before each commit whether it still is
the last that did.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehand.errors import ObjectNotFoundError, WriterCollisionError

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["Fence"]

_DIRECTORY = "_lakehand/writers"
#: So many sinks that died one after the other, before a commit, are remembered.
_MOST_EARLIER = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Fence:
    """The sign of one sink under its writer id."""

    store: Store
    writer_id: str
    session: str

    @property
    def _key(self) -> str:
        return f"{_DIRECTORY}/{hashlib.sha256(self.writer_id.encode()).hexdigest()[:32]}.json"

    def put_up(self) -> frozenset[str]:
        """Say that this sink writes under the id from now on, and no other.

        Returns the sinks before it that did not end well, and may have left files.
        """
        sign = self._read() or {"session": self.session}
        earlier = {*sign.get("earlier", ()), sign["session"]} - {self.session}
        if sign.get("has_ended"):
            earlier.discard(sign["session"])
        self._put(earlier=sorted(earlier)[:_MOST_EARLIER])
        return frozenset(earlier)

    def forget_earlier(self) -> None:
        """Say that nothing is left of the sinks before this one."""
        if self.check():
            self._put(earlier=[])

    def take_down(self) -> None:
        """Say that this sink has ended, and left nothing."""
        sign = self._read()
        if sign is not None and sign["session"] == self.session:
            self._put(earlier=sign.get("earlier", []), has_ended=True)

    def _put(self, **further: Any) -> None:
        sign = {"writer_id": self.writer_id, "session": self.session, **further}
        self.store.put(self._key, json.dumps(sign).encode())

    def _read(self) -> dict[str, Any] | None:
        try:
            sign: dict[str, Any] = json.loads(self.store.get(self._key))
        except ObjectNotFoundError:
            # Somebody tidied up: whoever opens a sink next puts up another one.
            return None
        return sign

    def claim(self) -> None:
        """Put the sign up where there is none; WriterCollisionError if it is another's.

        For a session that lasts: that of a stream, which its checkpoint keeps over all restarts.
        """
        if not self.check():
            self.put_up()

    def check(self) -> bool:
        """Say whether the sign is there; WriterCollisionError if it is another's."""
        sign = self._read()
        if sign is None:
            return False
        if sign["session"] != self.session:
            raise WriterCollisionError(
                f"another process has opened a sink, or started another stream, on {self.store.url}"
                f" under the writer id {self.writer_id!r}",
                table=self.store.url,
                writer_id=self.writer_id,
                hint="nothing of this epoch was committed; give each writer an id of its own, and"
                " let only one process at a time use it; a stream with a new checkpoint is a new"
                " writer",
            )
        return True
