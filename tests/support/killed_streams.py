"""Drivers of streams in processes of their own, which die by SIGKILL around a commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from lakehand.engine.session import open_session
from lakehand.settings import Settings
from lakehand.spark import LakehandSource
from support.spark_tables import every_type
from support.unmeasured import unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_SECONDS = 300
SCHEMA = "id LONG, part STRING, at TIMESTAMP"


def write_source(folder: Path, number: int, ids: range) -> None:
    """Put one file into the folder that streams read, one file a micro-batch."""
    folder.mkdir(exist_ok=True)
    rows = ({"id": i, "part": f"p{i % 3}", "at": f"2026-01-01T00:00:{i % 60:02d}Z"} for i in ids)
    path = folder / f"{number:04d}.json"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    # Spark takes the oldest ones first.
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def run_stream(
    folder: Path,
    *,
    die: str = "never",
    batch: int = -1,
    then_batches: bool = False,
    changes: bool = False,
    **options: str,
) -> int:
    """Bring all there is of `folder/source` into `folder/table`; return how the driver ended.

    `die` is "before" or "after" the commit of a batch. `then_batches`: the driver also writes
    `folder/batches`, without a stream. `changes`: the stream reads the changes of the table
    `folder/feed`, and not `folder/source`.
    """
    work = {"folder": str(folder), "die": die, "batch": batch, "options": options}
    work |= {"then_batches": then_batches, "changes": changes}
    environment = os.environ if die == "never" else unmeasured()
    with (folder / "driver.log").open("ab") as log:
        done = subprocess.run(
            [sys.executable, "-m", "support.killed_streams", json.dumps(work)],
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TZ": "UTC"},
            stdout=log,
            stderr=log,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    return done.returncode


class _MortalWriter(DataSourceStreamArrowWriter):
    """A writer in whose commit the driver is killed, its JVM included."""

    def __init__(self, writer: Any, *, die: str, batch: int, victims: list[int]) -> None:
        self._writer = writer
        self._die, self._batch, self._victims = die, batch, victims

    def write(self, iterator: Iterator[Any]) -> Any:
        return self._writer.write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        if (self._die, self._batch) == ("before", batchId):
            self._kill()
        self._writer.commit(messages, batchId)
        if (self._die, self._batch) == ("after", batchId):
            self._kill()

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self._writer.abort(messages, batchId)

    def _kill(self) -> None:
        for victim in (*self._victims, os.getpid()):
            os.kill(victim, signal.SIGKILL)


def _mortal_source(**fate: Any) -> type[LakehandSource]:
    # Made here, it is sent to Spark's Python workers with all that it holds.
    class Source(LakehandSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: FBT001, N802
            return _MortalWriter(super().streamWriter(schema, overwrite), **fate)

    return Source


def _write_batches(spark: Any, folder: Path) -> None:
    """Append rows of every type twice, and replace one part; `rows.json` is what Spark has then."""
    rows = spark.sql(every_type())
    one_part = rows.where("part = '1'")
    source = {"format": "lakehand", "path": str(folder / "batches")}
    for _ in range(2):
        rows.write.mode("append").save(partition_by="part", **source)
    one_part.write.mode("overwrite").save(where="part = '1'", **source)
    others = rows.where("part <> '1'")
    # As the oracle has it.
    spark.conf.set("spark.sql.jsonGenerator.ignoreNullFields", "false")
    expected = one_part.unionAll(others).unionAll(others).toJSON().collect()
    (folder / "rows.json").write_text(json.dumps(sorted(expected)))


def _files(spark: Any, folder: Path) -> Any:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return rows.json(str(folder / "source"))


def _changes(spark: Any, folder: Path) -> Any:
    rows = spark.readStream.format("lakehand").option("readChangeFeed", "true")
    rows = rows.option("startingVersion", 0).option("max_files_per_trigger", 2)
    names = ("id", "part", "_change_type AS kind", "_commit_version AS version")
    return rows.load(str(folder / "feed")).selectExpr(*names)


def main() -> None:
    work = json.loads(sys.argv[1])
    folder = Path(work["folder"])
    spark, _ = open_session(Settings({"master": "local[2]"}))
    victims = [spark.sparkContext._gateway.proc.pid, os.getpid()]
    spark.dataSource.register(_mortal_source(die=work["die"], batch=work["batch"], victims=victims))
    rows = _changes(spark, folder) if work["changes"] else _files(spark, folder)
    query = (
        rows.writeStream.format("lakehand")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .options(partition_by="part", **work["options"])
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination()
    if work["then_batches"]:
        _write_batches(spark, folder)
    spark.stop()


if __name__ == "__main__":
    main()
