"""The verbs of a table that bring rows into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehand.formats.base import FormatTable
    from lakehand.model.writing import WriteReport
    from lakehand.settings import Settings

__all__ = ["WriteVerbs"]


class WriteVerbs:
    """What a table can do with new rows."""

    _handle: FormatTable
    _settings: Settings

    def append(self, data: Any, *, epoch: int | None = None, **settings: Any) -> WriteReport:
        """Add rows to the table, all of them in one version.

        `data` is an Arrow table, batch or reader, anything else that hands out Arrow, or a pandas
        frame. A reader may be larger than memory. With `writer_id` and an `epoch` the rows are
        added once, however often this is called. Further keywords are settings, for this call only.
        """
        from lakehand.sink.one_call import write_once

        chosen = self._settings.with_call({**settings, "write_mode": "append"})
        return write_once(self._handle, data, settings=chosen, epoch=epoch)

    def overwrite(
        self, data: Any, *, where: str | None = None, epoch: int | None = None, **settings: Any
    ) -> WriteReport:
        """Put rows in the place of all that is there, or of the part that `where` describes.

        `where` is a condition in SQL that metadata can decide for every file, as those on partition
        columns; all new rows must fulfil it. The other arguments are those of `append`.
        """
        from lakehand.sink.one_call import write_once

        chosen = self._settings.with_call({**settings, "write_mode": "overwrite"})
        return write_once(self._handle, data, settings=chosen, where=where, epoch=epoch)
