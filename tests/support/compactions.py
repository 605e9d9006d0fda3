"""Compactions whose tasks run in their own process, so that it can be stopped or killed there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lakehand import maintain
from lakehand.engine import CancelToken, TaskOutcome
from lakehand.formats.delta.table import DeltaTable
from lakehand.rewrite import execute
from lakehand.settings import Settings
from lakehand.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakehand.model.reports import OperationReport


class InlineRunner:
    """Runs one task after the other in the calling process."""

    def run(
        self,
        function: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        payloads: Sequence[Mapping[str, Any]],
        *,
        on_result: Callable[[TaskOutcome], None],
        cancel: CancelToken,
        **_: Any,
    ) -> list[TaskOutcome]:
        outcomes = []
        for index, payload in enumerate(payloads):
            cancel.raise_if_cancelled()
            outcomes.append(TaskOutcome(index=index, result=function(payload)))
            on_result(outcomes[-1])
        return outcomes

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def open_table(path: str, options: dict[str, str] | None = None) -> DeltaTable:
    return DeltaTable(open_store(path, options))


def compact_inline(
    path: str, takeover_after: str = "2m", options: dict[str, str] | None = None, **settings: Any
) -> OperationReport:
    """Compact the table at `path`; a run that was silent for `takeover_after` is taken over."""
    execute.open_runner = lambda _settings, **_: InlineRunner()
    chosen = Settings({"takeover_after": takeover_after, **settings}, environment={})
    return maintain.compact(open_table(path, options), settings=chosen)
