"""An Airflow DAG that maintains tables every hour, one task per table."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.exceptions import AirflowFailException
from airflow.sdk import dag, task

TABLES = ["s3://lake/orders", "s3://lake/events"]


@task(retries=2, retry_delay=timedelta(minutes=5), max_active_tis_per_dag=4)
def maintain(table: str) -> dict[str, Any]:
    """Run what is due on one table; the report becomes the task's XCom."""
    import lakehand

    try:
        report = lakehand.open_table(table).maintain()
    except lakehand.LakehandError as error:
        if error.retryable:
            raise  # Airflow retries.
        raise AirflowFailException(str(error)) from error
    return report.to_json()


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def maintain_lake() -> None:
    """Maintain all tables."""
    maintain.expand(table=TABLES)


maintain_lake()
