"""Drivers of streams in processes of their own, which die by SIGKILL around a commit.

To start Spark takes most of the time of a kill. So there are two kinds: the driver is killed with
its JVM, or only the Python process in which the commit runs, as often as one likes in one JVM. In
both cases the stream goes on from its checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSourceStreamArrowWriter

import lakehand
from lakehand.engine.session import open_session
from lakehand.settings import Settings
from lakehand.spark import LakehandSource
from support.spark_tables import every_type
from support.unmeasured import unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PATIENCE_SECONDS = 300
_SHOWN_CHARACTERS = 6_000
SCHEMA = "id LONG, part STRING, at TIMESTAMP"


def feed_rows(ids: Iterable[int]) -> pa.Table:
    """Return rows of the table whose changes are read."""
    ids = list(ids)
    return pa.table({"id": pa.array(ids, pa.int64()), "part": [f"p{i % 3}" for i in ids]})


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
    return _run_driver(work, environment, _PATIENCE_SECONDS)


def run_killed_stream(
    folder: Path,
    steps: list[tuple[str, str]],
    *,
    seconds: float,
    first: int = 0,
    finishes: bool = True,
) -> int:
    """Copy the changes of `folder/feed` into `folder/table`; return how the driver ended.

    Each of `steps` is a way to die, "before" or "after" a commit, and a Python expression that
    changes the `table` before that. The number of the step is that of the batch; drivers before
    this one ran the steps up to `first`. At last the stream runs to its end, unless another driver
    goes on. The driver ends with 0 only if each commit was killed.
    """
    work = {"folder": str(folder), "changes": True, "steps": steps, "options": {}}
    work |= {"first": first, "finishes": finishes}
    return _run_driver(work, os.environ, seconds)


def _run_driver(work: dict[str, Any], environment: Mapping[str, str], seconds: float) -> int:
    path = Path(work["folder"]) / "driver.log"
    with path.open("ab") as log:
        done = subprocess.run(
            [sys.executable, "-m", "support.killed_streams", json.dumps(work)],
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TZ": "UTC"},
            stdout=log,
            stderr=log,
            timeout=seconds,
            check=False,
        )
    if done.returncode > 0:
        # Shown by a test that did not expect it.
        print(path.read_text(errors="replace")[-_SHOWN_CHARACTERS:])
    return done.returncode


class _MortalWriter(DataSourceStreamArrowWriter):
    """A writer in whose commit its process is killed, and the victims, such as a JVM, before it."""

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


def _start(spark: Any, work: dict[str, Any], **fate: Any) -> Any:
    """Start the stream, with a writer that dies as it is told."""
    folder = Path(work["folder"])
    spark.dataSource.register(_mortal_source(**fate))
    rows = _changes(spark, folder) if work["changes"] else _files(spark, folder)
    return (
        rows.writeStream.format("lakehand")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .options(partition_by="part", **work["options"])
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )


def _run_steps(spark: Any, work: dict[str, Any]) -> None:
    """Change the table and kill a commit, step by step; then let the stream run to its end."""
    table = lakehand.open_table(Path(work["folder"]) / "feed")
    for number, (die, change) in enumerate(work["steps"], start=work["first"]):
        eval(change, {"table": table, "rows": feed_rows})
        while (end := _end_of(_start(spark, work, die=die, batch=number, victims=[]))) != "killed":
            if end == "done":
                raise SystemExit(f"step {number}: nothing was killed")
            print(f"step {number}: again")
        print(f"step {number}: killed {die} its commit", flush=True)
    while work["finishes"] and (
        _end_of(_start(spark, work, die="never", batch=-1, victims=[])) != "done"
    ):
        print("at last: again")


def _end_of(query: Any) -> str:
    """Return how a query ended: "done", "killed", or "starved" by a machine with too much to do."""
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        if "failed to connect back" in str(error):
            return "starved"
        if "exited unexpectedly" in str(error) or "EOF" in str(error):
            return "killed"
        raise
    return "done"


def main() -> None:
    work = json.loads(sys.argv[1])
    spark, _ = open_session(Settings({"master": "local[2,4]"}))
    if "steps" in work:
        _run_steps(spark, work)
    else:
        victims = [spark.sparkContext._gateway.proc.pid, os.getpid()]
        query = _start(spark, work, die=work["die"], batch=work["batch"], victims=victims)
        query.awaitTermination()
        if work["then_batches"]:
            _write_batches(spark, Path(work["folder"]))
    spark.stop()


if __name__ == "__main__":
    main()
