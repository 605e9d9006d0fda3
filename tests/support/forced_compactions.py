"""Compactions in the test's own process, by a method of the test's choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch

from lakehand.rewrite import run as rewrite_run
from lakehand.runs import operation
from lakehand.settings import Settings
from support.compactions import InlineRunner
from support.rows import delta_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lakehand.engine import TaskOutcome
    from lakehand.model.reports import OperationReport

Method = Literal["recode", "copy"]


@dataclass(frozen=True)
class MethodRunner(InlineRunner):
    """Runs tasks here; every group by one method, unless its task declines."""

    method: Method | None = None

    def run(
        self,
        function: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        payloads: Sequence[Mapping[str, Any]],
        **options: Any,
    ) -> list[TaskOutcome]:
        chosen = {"method": self.method} if self.method else {}
        forced = [{**payload, "group": {**payload["group"], **chosen}} for payload in payloads]
        return super().run(function, forced, **options)


def compact_here(path: Path, *, method: Method | None = None, **settings: Any) -> OperationReport:
    """Compact whatever can be; errors of tasks are raised as they are."""
    eager = {"engine": "local", "min_files": 2, "deleted_row_ratio": 0.0, **settings}
    chosen = Settings(eager, environment={})
    with patch.object(operation, "open_runner", lambda _settings, **_: MethodRunner(method)):
        return rewrite_run.compact(delta_table(path), settings=chosen)
