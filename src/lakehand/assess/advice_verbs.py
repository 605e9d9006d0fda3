"""The verb of a table that gives advice on its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.formats.base import for_call

if TYPE_CHECKING:
    from lakehand.assess.advise import Advice
    from lakehand.formats.base import FormatTable
    from lakehand.settings import Settings

__all__ = ["AdviceVerbs"]


class AdviceVerbs:
    """What a table can say about orders that it might have."""

    _handle: FormatTable
    _settings: Settings

    def advise(self, *, queries: str | None = None, **settings: Any) -> Advice:
        """Propose columns and a curve to `cluster` by, each tried on a sample of the rows.

        `queries` is SQL: statements with semicolons behind them, or one a line. The more often a
        condition is in it, the more it counts. Without queries a fixed set of questions to all
        columns is asked. Writes nothing. Further keywords are settings, for this call only.
        """
        from lakehand.assess.advise import advise

        handle, chosen = for_call(self._handle, self._settings, settings)
        return advise(handle, settings=chosen, queries=queries)
