"""What reports say in numbers: counters of the service, and metrics of single runs.

A run from cron ends before anyone can scrape it. It writes a file for node_exporter's textfile
collector, or pushes to a Pushgateway.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from lakehand.errors import ConfigError, NotInstalledError
from lakehand.model.secrets import SECRET_KINDS, read_secret
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from prometheus_client.registry import CollectorRegistry

    from lakehand.service.many_tables import TableResult

#: Fields of reports that are added to a counter unchanged.
_COUNTED = {
    "files_removed": "files_removed",
    "files_added": "files_added",
    "bytes_removed": "bytes_rewritten",
    "bytes_added": "bytes_written",
    "files_deleted": "files_deleted",
    "bytes_freed": "bytes_freed",
    "retries": "commit_conflicts",
}
_PUSH_SECONDS = 15.0
_logger = get_logger(__name__)


class Increment(NamedTuple):
    """What is added to one counter."""

    metric: str
    labels: Mapping[str, str]
    value: float = 1.0


def report_increments(report: Mapping[str, Any]) -> Iterator[Increment]:
    """Return what an operation did, by its report; of `maintain`, what its steps did."""
    for one in _reports(report):
        yield from _of_operation(one)


def _reports(report: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the reports of operations: those of the steps of `maintain`, and else the report."""
    if "steps" not in report:
        yield report
        return
    for step in report["steps"]:
        yield {**(step.get("report") or {}), "operation": step["step"], "outcome": step["outcome"]}


def _of_operation(report: Mapping[str, Any]) -> Iterator[Increment]:
    if report.get("outcome") == "dry_run" or "operation" not in report:
        return
    operation = str(report["operation"])
    verb = {"verb": operation}
    yield Increment("operations", {**verb, "outcome": str(report["outcome"])})
    for name, metric in _COUNTED.items():
        yield Increment(metric, verb, float(report.get(name) or 0))
    yield Increment("groups_lost", verb, float((report.get("groups") or {}).get("dropped", 0)))
    yield Increment("rows_proved", verb, float((report.get("proof") or {}).get("rows", 0)))
    yield Increment("operation_seconds", verb, (report.get("duration_ms") or 0.0) / 1000)


#: Metrics that every run has, with their meanings.
_OF_RUN = {
    "timestamp_seconds": "When the last run ended.",
    "success": "1 if the last run succeeded, otherwise 0.",
    "duration_seconds": "Duration of the last run.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMetrics:
    """Where the metrics of a run go. Without a place they go nowhere."""

    #: A file that is replaced as a whole; node_exporter reads those that end in `.prom`.
    file: Path | None = None
    #: URL of a Pushgateway, or `env:VARIABLE` or `file:/path` of one with a password.
    push: str | None = None
    #: Value of the label `job`; a push replaces all metrics that have it.
    job: str = "lakehand"

    def check(self) -> None:
        """Raise an error before the run for what would keep its metrics from being told."""
        if self.file is None and self.push is None:
            return
        _load_client()
        if self.file is not None and not self.file.absolute().parent.is_dir():
            message = f"metrics cannot be written to {self.file}: there is no such directory"
            raise ConfigError(message, hint="name a file in the directory of the collector")
        if self.push is not None:
            self._address()

    def tell(self, results: Sequence[TableResult]) -> None:
        """Write and push the metrics of a run. A failure is logged: the run itself is done."""
        if self.file is None and self.push is None:
            return
        registry = run_registry(results, at=time.time())
        if self.file is not None:
            from prometheus_client import write_to_textfile

            self._try(lambda: write_to_textfile(str(self.file), registry), str(self.file))
        if self.push is not None:
            self._try(lambda: self._push(registry), "the Pushgateway")

    def _try(self, tell: Callable[[], None], where: str) -> None:
        try:
            tell()
        except OSError as error:
            # An error of urllib is an OSError; its text names no URL.
            message = "Metrics were not written to %s: %s"
            log_event(_logger, logging.WARNING, "metrics_failed", message, where, error)

    def _address(self) -> tuple[str, str | None, str | None]:
        """Return the URL of the gateway without its user and password, and these."""
        given = self.push or ""
        url = read_secret(given) if given.startswith(SECRET_KINDS) else given
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError("the URL of the Pushgateway is not one such as http://host:9091")
        host = parts.netloc.rpartition("@")[2]
        user, password = (
            None if one is None else unquote(one) for one in (parts.username, parts.password)
        )
        return f"{parts.scheme}://{host}{parts.path.rstrip('/')}", user, password

    def _push(self, registry: CollectorRegistry) -> None:
        from prometheus_client.exposition import (
            basic_auth_handler,
            default_handler,
            push_to_gateway,
        )

        gateway, user, password = self._address()

        def handle(
            url: str, method: str, timeout: float | None, headers: list[Any], data: bytes
        ) -> Callable[[], None]:
            if user is None:
                return default_handler(url, method, timeout, headers, data)
            return basic_auth_handler(url, method, timeout, headers, data, user, password)

        push_to_gateway(gateway, self.job, registry, timeout=_PUSH_SECONDS, handler=handle)


def _load_client() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        message = "metrics need prometheus-client, which is not installed"
        raise NotInstalledError(message, hint="pip install 'lakehand[metrics]'") from error
    return prometheus_client


def run_registry(results: Sequence[TableResult], *, at: float) -> CollectorRegistry:
    """Return the metrics of a run: gauges with the prefix `lakehand_run_`, by table."""
    from prometheus_client import CollectorRegistry, Gauge

    registry = CollectorRegistry()
    gauges: dict[str, Gauge] = {}
    for one in run_values(results, at=at):
        if one.metric not in gauges:
            help_text = _OF_RUN.get(one.metric, f"{one.metric.replace('_', ' ')} of the last run.")
            name = f"lakehand_run_{one.metric}"
            gauges[one.metric] = Gauge(name, help_text, sorted(one.labels), registry=registry)
        gauges[one.metric].labels(**one.labels).inc(one.value)
    return registry


def run_values(results: Sequence[TableResult], *, at: float) -> Iterator[Increment]:
    """Return the numbers of the tables that a run has maintained, or failed to."""
    for result in results:
        if result.outcome == "not_run":
            continue
        table = {"table": result.table}
        yield Increment("timestamp_seconds", table, at)
        yield Increment("success", table, float(result.outcome != "failed"))
        yield Increment("duration_seconds", table, result.duration_ms / 1000)
        for one in report_increments(result.report or {}):
            yield Increment(one.metric, {**table, **one.labels}, one.value)
