"""Dagster: a scheduled job that maintains tables, and a check of a table's health."""

from __future__ import annotations

import dagster as dg

import lakehand

TABLES = {"orders": "s3://lake/orders", "events": "s3://lake/events"}


@dg.op(retry_policy=dg.RetryPolicy(max_retries=2, delay=300))
def maintain_tables(context) -> None:  # noqa: ANN001  Dagster refuses annotations that are strings
    """Run what is due on all tables; one that fails does not stop the others."""
    report = lakehand.maintain_tables(list(TABLES.values()), jobs=4)
    for result in report.tables:
        context.log.info("%s: %s", result.table, result.outcome)
    failed = [result.table for result in report.tables if result.error]
    if failed:
        raise dg.Failure(f"not maintained: {', '.join(failed)}")


@dg.job
def maintain_lake() -> None:
    """Maintain the lake."""
    maintain_tables()


@dg.asset_check(asset=dg.AssetKey("orders"))
def orders_are_healthy() -> dg.AssetCheckResult:
    """Check the table after each load; the score is kept with the check."""
    report = lakehand.check_health(TABLES["orders"])
    return dg.AssetCheckResult(
        passed=report.healthy,
        metadata={"score": report.score, "files": report.file_count or 0},
    )


definitions = dg.Definitions(
    jobs=[maintain_lake],
    schedules=[dg.ScheduleDefinition(job=maintain_lake, cron_schedule="0 * * * *")],
    asset_checks=[orders_are_healthy],
)
