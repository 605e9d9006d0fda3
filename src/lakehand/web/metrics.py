"""`/metrics`: the service in the format of Prometheus, read from its store at each scrape."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from lakehand._version import __version__
from lakehand.errors import NotInstalledError
from lakehand.service.job_specs import table_policy
from lakehand.service.job_states import LANE_OF
from lakehand.service.store import service_metrics as stored
from lakehand.service.store.database_schema import TABLES
from lakehand.service.store.service_metrics import FAMILIES, Reading
from lakehand.service.store.table_registry import RegisteredTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry
    from sqlalchemy import Connection
    from starlette.requests import Request

    from lakehand.service.config import ServiceConfig
    from lakehand.service.store.database import Database

#: A worker that was silent for this many leases is lost.
_LEASES_SILENT = 3
#: Several servers that scrape cause one read in this time.
_FRESH_SECONDS = 5.0
_BOUNDS = (*(f"{bucket:g}" for bucket in stored.BUCKETS), "+Inf")


class ServiceMetrics:
    """Reads the metrics of a service; `config` returns the configuration of the moment."""

    def __init__(
        self,
        database: Database,
        config: Callable[[], ServiceConfig],
        *,
        fresh_seconds: float = _FRESH_SECONDS,
    ) -> None:
        self._database = database
        self._config = config
        self._fresh_seconds = fresh_seconds
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._known: Mapping[str, Sequence[Reading]] = {}

    def read(self) -> Mapping[str, Sequence[Reading]]:
        """Return the readings of every metric, by its name; JobStoreError without a store."""
        with self._lock:
            if time.monotonic() - self._read_at >= self._fresh_seconds:
                self._known = self._read()
                self._read_at = time.monotonic()
            return self._known

    def _read(self) -> Mapping[str, Sequence[Reading]]:
        found: dict[str, list[Reading]] = defaultdict(list)
        with self._database.reading() as connection:
            for one in self._readings(connection):
                found[one.metric].append(one)
            for total in stored.MetricTotals(self._database).read(connection):
                found[total.metric].append(Reading(*total))
        for zero in _zeros(self._config()):
            if all(one.labels != zero.labels for one in found[zero.metric]):
                found[zero.metric].append(zero)
        return found

    def _readings(self, connection: Connection) -> Iterator[Reading]:
        config = self._config()
        now = float(connection.execute(select(self._database.now())).scalar_one())
        silent = _LEASES_SILENT * config.service.lease.total_seconds()
        day = datetime.fromtimestamp(now, config.service.time_zone).date().isoformat()
        held = held_tables(connection, config)
        below = config.metrics.unhealthy_below
        yield Reading("build_info", {"version": __version__}, 1)
        yield from stored.job_readings(connection, now, silent)
        yield from stored.table_readings(connection, now, held=held, unhealthy_below=below)
        yield from stored.service_readings(connection, now, day, silent)
        if config.metrics.per_table != "none":
            limit = None if config.metrics.per_table == "all" else below
            yield from stored.single_table_readings(
                connection, now, held=held, unhealthy_below=limit
            )


def _zeros(config: ServiceConfig) -> Iterator[Reading]:
    """Return series that exist before anything is counted: an increase from nothing is not seen."""
    yield Reading("leases_lost", {}, 0)
    for verb in LANE_OF:
        yield Reading("proof_failures", {"verb": verb}, 0)
        for outcome in ("committed", "crashed", "failed", "timed_out"):
            yield Reading("job_attempts", {"verb": verb, "outcome": outcome}, 0)
    for outcome in ("accepted", "refused"):
        yield Reading("config_reloads", {"outcome": outcome}, 0)
    for outcome in ("sent", "failed", "dropped"):
        yield Reading("webhook_deliveries", {"outcome": outcome}, 0)
    for source in config.sources:
        for outcome in ("complete", "failed"):
            yield Reading("discoveries", {"source": source.name, "outcome": outcome}, 0)


def held_tables(connection: Connection, config: ServiceConfig) -> frozenset[int]:
    """Return the tables of which a verb is held now: a change of the policy lifts a hold."""
    held = stored.matching_holds(connection, __version__)
    if not held:
        return frozenset()
    wanted = select(TABLES).where(TABLES.c.id.in_({table_id for table_id, _ in held}))
    tables = {row.id: RegisteredTable.of(row) for row in connection.execute(wanted)}
    return frozenset(
        table_id
        for table_id, digest in held
        if table_id in tables and table_policy(config, tables[table_id]).digest == digest
    )


class ServiceCollector:
    """Gives prometheus_client what the store holds at the time of a scrape."""

    def __init__(self, metrics: ServiceMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        """Return nothing: what is collected is known at each scrape only."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all metrics; those without a series have their description alone."""
        found = self._metrics.read()
        for family in FAMILIES:
            if family.kind == "histogram":
                yield _histogram(family, found)
            else:
                yield _plain(family, found.get(family.name, ()))


def _plain(family: stored.MetricFamily, readings: Sequence[Reading]) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    made = kind(f"lakehand_{family.name}", family.help, labels=family.labels)
    for one in readings:
        made.add_metric([one.labels.get(name, "") for name in family.labels], one.value)
    return made


def _histogram(family: stored.MetricFamily, found: Mapping[str, Sequence[Reading]]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    counts: dict[tuple[str, ...], dict[str, float]] = {}
    for one in found.get(f"{family.name}_bucket", ()):
        counts.setdefault(_key(family, one), {})[one.labels["le"]] = one.value
    sums = {_key(family, one): one.value for one in found.get(f"{family.name}_sum", ())}
    made = HistogramMetricFamily(f"lakehand_{family.name}", family.help, labels=family.labels)
    for key, counted in counts.items():
        total, buckets = 0.0, []
        for bound in _BOUNDS:
            total += counted.get(bound, 0.0)
            buckets.append((bound, total))
        made.add_metric(list(key), buckets, sums.get(key, 0.0))
    return made


def _key(family: stored.MetricFamily, reading: Reading) -> tuple[str, ...]:
    return tuple(reading.labels.get(name, "") for name in family.labels)


class MetricsEndpoint:
    """Answers a scrape."""

    def __init__(self, database: Database, config: Callable[[], ServiceConfig]) -> None:
        self._database = database
        self._config = config
        self._registry: CollectorRegistry | None = None

    async def answer(self, request: Request) -> Response:
        """Return all metrics, in the format that the Accept header asks for."""
        accept = request.headers.get("accept", "")
        body, kind = await run_in_threadpool(self._expose, accept)
        return Response(body, headers={"Content-Type": kind})

    def _expose(self, accept: str) -> tuple[bytes, str]:
        try:
            from prometheus_client.exposition import choose_encoder
            from prometheus_client.registry import CollectorRegistry
        except ImportError as error:
            message = "metrics need prometheus-client, which is not installed"
            raise NotInstalledError(message, hint="pip install 'lakehand[web]'") from error
        if self._registry is None:
            registry = CollectorRegistry(auto_describe=False)
            collector: Any = ServiceCollector(ServiceMetrics(self._database, self._config))
            registry.register(collector)
            self._registry = registry
        encode, kind = choose_encoder(accept)
        body: bytes = encode(self._registry)
        return body, kind
