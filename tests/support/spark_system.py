"""SQL on the session of a runner's host: system tables, jobs and statements of Spark."""

from __future__ import annotations

from typing import Any

import lakehand
from lakehand.errors import LakehandError


def use_service(runner: Any, store: str, path: str) -> dict[str, Any]:
    """Register lakehand, join system tables with a table, and queue jobs."""
    spark = runner._session()
    found: dict[str, Any] = {}
    with lakehand.ServiceClient(store=store) as client:
        lakehand.register(spark, client)
        found["submitted"] = _rows(spark.sql("SELECT * FROM lakehand_submit('orders')"))
        again = spark.sql("SELECT * FROM lakehand_submit('orders', 'MAINTAIN')")
        found["again"] = [_rows(again), _rows(again)]
        other = "SELECT * FROM lakehand_submit('orders', 'OPTIMIZE ? WHERE id > 0')"
        found["other"] = _rows(spark.sql(other))
        spark.sql(
            "CREATE OR REPLACE TEMPORARY VIEW jobs USING lakehand_system OPTIONS (table 'jobs')"
        )
        spark.read.format("lakehand").load(path).createOrReplaceTempView("orders")
        join = "SELECT j.verb, o.id FROM {} j JOIN orders o ON o.id = j.id ORDER BY 1"
        found["view"] = _rows(spark.sql(join.format("jobs")))
        found["joined"] = _rows(
            lakehand.run_sql(join.format("system.jobs"), spark=spark, service=client)
        )
        files = f"SELECT count(*) FROM system.files('{path}') WHERE 'system.jobs' = :s"
        found["files"] = _rows(lakehand.run_sql(files, {"s": "system.jobs"}, spark=spark))
        found["report"] = lakehand.run_sql(f"VACUUM {path} DRY RUN", spark=spark).report["outcome"]
        found["foreign"] = _rows(lakehand.run_sql("SHOW DATABASES", spark=spark))
    return found


def failures(runner: Any) -> list[str]:
    """Return how wrong uses fail."""
    spark = runner._session()
    lakehand.register(spark)
    found = []
    for use in (
        lambda: spark.read.format("lakehand_system").option("table", "secrets").load(),
        lambda: lakehand.run_sql("SELECT * FROM system.jobs", spark=spark),
        lambda: lakehand.run_sql("OPTIMIZE no_such_table_anywhere", spark=spark),
    ):
        try:
            use()
        except LakehandError as error:
            found.append(error.code)
        except Exception as error:  # noqa: BLE001  Spark wraps what Python raises
            found.append(str(error))
    return found


def _rows(frame: Any) -> list[list[Any]]:
    return [list(row) for row in frame.collect()]
