"""The other end of `support.oracle`: delta-spark, answering one JSON line at a time."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

DELTA_PACKAGE = "io.delta:delta-spark_2.13:4.4.0"
HOLD_SECONDS = 100

CONFIGURATION = {
    "spark.jars.packages": DELTA_PACKAGE,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Without this a null and an absent field look the same.
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: Most of the processor's time goes into plans and code for a handful of rows. Whole stages stay
#: compiled: without them Spark reads Parquet with another reader than its users do. Of many rows
#: this makes Spark slow, so benchmarks do without it.
_FOR_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.useIdInClassName": "false",
    "spark.sql.codegen.cache.maxEntries": "5000",
}


def start_session(scratch: Path) -> Any:
    """Start Spark with Delta in this process; its own files stay below `scratch`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("oracle")
    for name, value in (CONFIGURATION | _FOR_FEW_ROWS).items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    spark = builder.config("spark.local.dir", str(scratch / "local")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Server:
    """Every public method is a request of the same name."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def sql(self, text: str) -> list[str]:
        frame = self._spark.sql(text)
        return frame.toJSON().collect() if frame.columns else []

    def rows(self, path: str, version: int | None, columns: list[str], where: str) -> list[str]:
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        frame = reader.load(path).where(where).selectExpr(*columns)
        return sorted(frame.toJSON().collect())

    def files_read(self, path: str, where: str) -> list[str]:
        """Return the files that are left of a scan once delta-spark has skipped by statistics."""
        frame = self._spark.read.format("delta").load(path).where(where)
        return sorted(file.removeprefix("file://") for file in frame.inputFiles())

    def export(self, path: str, target: str, version: int | None, columns: list[str]) -> None:
        """Read a table and write its rows into a plain Parquet directory, types and all."""
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        reader.load(path).selectExpr(*columns).coalesce(1).write.parquet(target)

    def write(
        self,
        path: str,
        query: str,
        mode: str,
        partition_by: list[str],
        files: int,
        options: dict[str, str],
    ) -> None:
        frame = self._spark.sql(query).coalesce(1)
        frame = frame.repartition(files) if files > 1 else frame
        writer = frame.write.format("delta").mode(mode).options(**options)
        writer = writer.partitionBy(*partition_by) if partition_by else writer
        writer.save(path)

    def detail(self, path: str) -> list[str]:
        return self.sql(f"DESCRIBE DETAIL delta.`{path}`")

    def history(self, path: str) -> list[str]:
        return self.sql(f"DESCRIBE HISTORY delta.`{path}`")

    def changes(self, path: str, starting_version: int) -> list[str]:
        reader = self._spark.read.format("delta").option("readChangeFeed", "true")
        frame = reader.option("startingVersion", starting_version).load(path)
        return sorted(frame.drop("_commit_timestamp").toJSON().collect())

    def stream(self, path: str, checkpoint: str, options: dict[str, str]) -> list[str]:
        """Let a stream that remembers its place in `checkpoint` read what is new."""
        batches: list[str] = []

        def collect(frame: Any, _batch: int) -> None:
            batches.extend(frame.toJSON().collect())

        source = self._spark.readStream.format("delta").options(**options).load(path)
        writer = source.writeStream.foreachBatch(collect).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(batches)

    def configure(self, values: dict[str, str | None]) -> dict[str, str | None]:
        """Set session settings (None: unset); return those that were in force."""
        before = {name: self._spark.conf.get(name, None) for name in values}
        for name, value in values.items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)
        return before

    def forget(self) -> None:
        """Drop every cached log, so that the next read starts from storage."""
        self._spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        self._spark.catalog.clearCache()


def hold_at(gate: str) -> bool:
    """Hold a query in SQL: tell by `<gate>.reached`, and go on when `<gate>.open` is there."""
    Path(f"{gate}.reached").touch()
    deadline = time.monotonic() + HOLD_SECONDS
    while not Path(f"{gate}.open").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{gate} was not opened in {HOLD_SECONDS} s")
        time.sleep(0.02)
    return True


def answer(server: Server, line: str) -> dict[str, Any]:
    request = json.loads(line)
    try:
        if request["fresh"]:
            server.forget()
        return {"result": getattr(server, request["method"])(**request["arguments"])}
    except Exception as error:  # noqa: BLE001  whatever fails is the caller's answer
        detail = traceback.format_exc(limit=-3)
        return {"error": str(error)[:8000], "kind": type(error).__name__, "detail": detail[:8000]}


def main(scratch: Path) -> None:
    # The JVM inherits descriptor 1 and may print; answers go through a private copy of it.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    spark = start_session(scratch)
    spark.udf.register("hold_at", hold_at, "boolean")
    server = Server(spark)
    print(json.dumps({"result": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(server, line)), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
