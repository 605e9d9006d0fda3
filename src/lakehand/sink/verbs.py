"""The verbs of a table that bring rows into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.formats.base import for_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakehand.formats.base import FormatTable
    from lakehand.model.row_reports import UpsertReport
    from lakehand.model.writing import WriteReport
    from lakehand.observe import OnProgress
    from lakehand.settings import Settings

__all__ = ["WriteVerbs"]


class WriteVerbs:
    """What a table can do with new rows."""

    _handle: FormatTable
    _settings: Settings
    _spark: Any

    def append(self, data: Any, *, epoch: int | None = None, **settings: Any) -> WriteReport:
        """Add rows to the table, all of them in one version.

        `data` is an Arrow table, batch or reader, anything else that hands out Arrow, or a pandas
        frame. A reader may be larger than memory. With `writer_id` and an `epoch` the rows are
        added once, however often this is called. Further keywords are settings, for this call only.
        """
        from lakehand.sink.one_call import write_once

        call = {**settings, "write_mode": "append"}
        handle, chosen = for_call(self._handle, self._settings, call)
        return write_once(handle, data, settings=chosen, epoch=epoch)

    def overwrite(
        self, data: Any, *, where: str | None = None, epoch: int | None = None, **settings: Any
    ) -> WriteReport:
        """Put rows in the place of all that is there, or of the part that `where` describes.

        `where` is a condition in SQL that metadata can decide for every file, as those on partition
        columns; all new rows must fulfil it. The other arguments are those of `append`.
        """
        from lakehand.sink.one_call import write_once

        call = {**settings, "write_mode": "overwrite"}
        handle, chosen = for_call(self._handle, self._settings, call)
        return write_once(handle, data, settings=chosen, where=where, epoch=epoch)

    def upsert(
        self,
        data: Any,
        *,
        key: Sequence[str],
        epoch: int | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> UpsertReport:
        """Bring rows in by their `key`: a row whose key is there takes its place, others are added.

        A column `_op` or `__weight` makes `data` a changelog: rows may go, too, and the changes of
        a key become one. Without it a key comes once, else DuplicateKeyError. Nulls equal each
        other. All in one version; the other arguments are those of `append` and `delete`.
        """
        from lakehand.sink.upsert_call import UpsertRequest, upsert_once

        request = UpsertRequest(
            key=key, epoch=epoch, spark=self._spark, dry_run=dry_run, on_progress=on_progress
        )
        call = {**settings, "write_mode": "append"}
        handle, chosen = for_call(self._handle, self._settings, call)
        return upsert_once(handle, data, settings=chosen, request=request)

    def delete_keys(
        self,
        data: Any,
        *,
        key: Sequence[str],
        epoch: int | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> UpsertReport:
        """Delete the rows that have one of the keys in `data`, of which no other column counts.

        The arguments are those of `upsert`.
        """
        from lakehand.sink.upsert_call import UpsertRequest, delete_keys_once

        request = UpsertRequest(
            key=key, epoch=epoch, spark=self._spark, dry_run=dry_run, on_progress=on_progress
        )
        call = {**settings, "write_mode": "append"}
        handle, chosen = for_call(self._handle, self._settings, call)
        return delete_keys_once(handle, data, settings=chosen, request=request)
