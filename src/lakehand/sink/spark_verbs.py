"""The verb of a table that hands its rows to Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.model.moments import one_moment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lakehand.formats.base import FormatTable
    from lakehand.settings import Settings

__all__ = ["SparkVerbs"]


class SparkVerbs:
    """What a table can do for Spark."""

    _handle: FormatTable
    _settings: Settings
    _spark: Any

    def to_spark(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        spark: Any = None,
    ) -> Any:
        """Return the rows of `to_arrow` as a frame of Spark's, which needs no jar to read them.

        The version is chosen now; its files are read by the executors, when the frame is. Choose
        columns and rows here: what is done to the frame later does not save a byte. `spark` is the
        session to use, else the one of the table, else one that is active or is started.
        """
        from lakehand.engine.session import open_session
        from lakehand.formats.scan import plan_scan
        from lakehand.sink.spark_source import frame_of

        scan = plan_scan(
            self._handle,
            columns=columns,
            where=where,
            version=version,
            timestamp=one_moment(version, timestamp),
        )
        session = spark or self._spark
        if session is None:
            session, _ = open_session(self._settings)
        return frame_of(scan, session)
