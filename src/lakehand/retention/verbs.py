"""The verbs of a table that delete files, or say what must stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.formats.base import for_call

if TYPE_CHECKING:
    from datetime import timedelta

    from lakehand.formats.base import FormatTable
    from lakehand.model.retention import VacuumReport
    from lakehand.observe import OnProgress
    from lakehand.retention.pins import Pin
    from lakehand.retention.vacuum import Mode
    from lakehand.settings import Settings

__all__ = ["RetentionVerbs"]


class RetentionVerbs:
    """What a table can do about files that it no longer needs."""

    _handle: FormatTable
    _settings: Settings
    _spark: Any

    def vacuum(
        self,
        *,
        mode: Mode = "full",
        expire: bool = False,
        undo: str | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
        **settings: Any,
    ) -> VacuumReport:
        """Set aside what no version within the retention needs; delete what was set aside before.

        What is set aside stays in place until its `grace` is over: until then `undo`, with the
        quarantine's id, gives it back; `grace=0` deletes at once. `expire` only deletes what is
        past its grace. `mode="lite"` lists nothing and looks at files that commits removed. Further
        keywords are settings, for this call only: `retention`, `grace`, ...
        """
        from lakehand.retention.vacuum import VacuumRequest, vacuum

        handle, chosen = for_call(self._handle, self._settings, settings)
        return vacuum(
            handle,
            settings=chosen,
            request=VacuumRequest(mode=mode, expire=expire, undo=undo),
            dry_run=dry_run,
            spark=self._spark,
            on_progress=on_progress,
        )

    def pin(
        self,
        name: str,
        *,
        version: int | None = None,
        stream: str | None = None,
        clone: str | None = None,
        expires: timedelta | str | None = None,
    ) -> Pin:
        """Keep something readable under a name, whatever the retention; by default this version.

        `stream` is the checkpoint directory of a Spark stream that reads this table, `clone` is
        the root of a table that refers to files of it. `expires` is how long the pin holds.
        """
        from lakehand.retention.pinning import make_pin

        wanted = {"version": version, "stream": stream, "clone": clone}
        return make_pin(self._handle, name, wanted, expires=expires)

    def unpin(self, name: str) -> Pin:
        """Drop a pin and return it."""
        from lakehand.retention.pinning import remove_pin

        return remove_pin(self._handle, name)

    def pins(self) -> list[Pin]:
        """Return all pins by name, expired ones included."""
        from lakehand.retention.pins import list_pins

        return list_pins(self._handle.store)
