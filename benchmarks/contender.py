"""One contender in a process of its own: it takes orders as lines of JSON, and times its own work.

The process is kept for all runs, so that imports, sessions and compiled code are warm for all.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

from deduplicating import by_delta_rs, by_delta_spark, by_duckdb, by_lakehand
from tpch import data_files, delete_with_spark

ROOT = Path(__file__).parent.parent
#: Where contenders that know no tables put their files, inside the table.
OUTPUT = "copied"
_CHUNK_BYTES = 16 * 2**20
#: Rows that a stream brings at a time.
_STREAMED_ROWS = 10_000
#: The judge of the tests makes do with less memory and the simplest collector.
_DELTA_SPARK = {
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
}
#: By default it deletes in the driver alone, and makes 10,000 tasks of every listing.
_FAST_VACUUM = {
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}


class LakehandOnSpark:
    """`table.compact()` in a warm session, which lakehand starts as it would for a user."""

    #: None: Spark inside the process that asks for it.
    master: str | None = None

    def __init__(self, _scratch: Path) -> None:
        from lakehand.engine.session import open_session
        from lakehand.settings import Settings

        self._spark, _ = open_session(Settings({"master": self.master}))

    def compact(self, order: dict[str, Any]) -> dict[str, Any]:
        from lakehand import open_table

        table = open_table(order["table"], spark=self._spark)
        return table.compact(**_wish(order)).to_json()

    def cluster(self, order: dict[str, Any]) -> dict[str, Any]:
        from lakehand import open_table

        return open_table(order["table"], spark=self._spark).cluster(**order["wish"]).to_json()

    def deduplicate(self, order: dict[str, Any]) -> dict[str, Any]:
        return by_lakehand(order["table"], spark=self._spark)

    def upsert(self, order: dict[str, Any]) -> dict[str, Any]:
        return _upsert(order, spark=self._spark)


class LakehandOnCluster(LakehandOnSpark):
    """The same on two executors, processes of one core each, which know only Spark's shuffle."""

    master = "local-cluster[2,1,4096]"


def _wish(order: dict[str, Any]) -> dict[str, Any]:
    """Return what is asked of a compaction."""
    names = ("target_file_bytes", "prove")
    return {name: order[name] for name in names if name in order}


def _upsert(order: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Bring rows in by key; reading them is left out, for all contenders."""
    import pyarrow.parquet as pq

    from lakehand import open_table

    given = pq.read_table(order["source"])
    started = time.perf_counter()
    report = open_table(order["table"], **options).upsert(given, key=order["key"]).to_json()
    return {**report, "seconds": time.perf_counter() - started}


class LakehandLocal:
    """`table.compact(engine="local")`; its worker processes are started in every run."""

    def __init__(self, _scratch: Path) -> None:
        import lakehand.rewrite.run  # noqa: F401  imports are left out of every contender's time

    def compact(self, order: dict[str, Any]) -> dict[str, Any]:
        from lakehand import open_table

        table = open_table(order["table"], engine="local")
        return table.compact(**_wish(order)).to_json()

    def cluster(self, order: dict[str, Any]) -> dict[str, Any]:
        from lakehand import open_table

        return open_table(order["table"], engine="local").cluster(**order["wish"]).to_json()

    def deduplicate(self, order: dict[str, Any]) -> dict[str, Any]:
        return by_lakehand(order["table"], engine="local")

    def upsert(self, order: dict[str, Any]) -> dict[str, Any]:
        return _upsert(order, engine="local")

    def vacuum(self, order: dict[str, Any]) -> dict[str, Any]:
        from lakehand import open_table

        return open_table(order["table"]).vacuum(grace=0).to_json()

    def append(self, order: dict[str, Any]) -> dict[str, Any]:
        from lakehand import TableSink

        epochs = [_batches(path) for path in order["sources"]]
        started = time.perf_counter()
        with TableSink(order["table"], writer_id="bench", on_backpressure="wait") as sink:
            for number, batches in enumerate(epochs):
                sink.begin_epoch(number)
                for batch in batches:
                    sink.write(batch)
                sink.commit_epoch()
        return {"seconds": time.perf_counter() - started}

    def commit(self, order: dict[str, Any]) -> dict[str, Any]:
        """Commit small epochs, and then open a sink again.

        A whole epoch is what a user waits for: its rows are written, synced and committed. The
        commit alone is taken in epochs whose files are staged before.
        """
        import pyarrow as pa

        from lakehand import TableSink

        place, options = order["table"], order.get("options")
        batch = pa.record_batch({"id": range(1_000)})
        whole: list[float] = []
        commit: list[float] = []
        commits, warm = order["commits"], order.get("warm_commits", 0)
        cpu_seconds = 0.0
        with TableSink(place, writer_id="bench", storage_options=options) as sink:
            for number in range(warm + 2 * commits):
                is_whole = number < warm + commits
                before = time.process_time()
                started = time.perf_counter()
                sink.begin_epoch(number)
                sink.write(batch)
                if not is_whole:
                    sink.pre_commit()
                    started = time.perf_counter()
                sink.commit_epoch()
                took = 1000 * (time.perf_counter() - started)
                if number >= warm:
                    (whole if is_whole else commit).append(took)
                    cpu_seconds += (time.process_time() - before) if is_whole else 0
        started = time.perf_counter()
        with TableSink(place, writer_id="bench", storage_options=options) as sink:
            sink.begin_epoch(warm + 2 * commits - 1)
        return {
            "epoch": _percentiles(whole),
            "commit": _percentiles(commit),
            "epoch_cpu_ms": 1000 * cpu_seconds / max(1, len(whole)),
            "recovery_s": time.perf_counter() - started,
        }


def _percentiles(took: list[float]) -> dict[str, float]:
    ranked = sorted(took)
    return {
        "median_ms": ranked[len(ranked) // 2],
        "p99_ms": ranked[int(0.99 * (len(ranked) - 1))],
    }


def _cached(spark: Any, order: dict[str, Any]) -> list[Any]:
    epochs = [spark.read.parquet(path).cache() for path in order["sources"]]
    for epoch in epochs:
        epoch.count()
    return epochs


def _append_with_spark(spark: Any, order: dict[str, Any], *, form: str) -> dict[str, Any]:
    epochs = _cached(spark, order)
    started = time.perf_counter()
    for epoch in epochs:
        epoch.write.format(form).mode("append").save(order["table"])
    return {"seconds": time.perf_counter() - started}


def _batches(path: str) -> list[Any]:
    """Return the rows of a file as a stream would bring them; reading is nobody's work here."""
    import pyarrow.parquet as pq

    return pq.read_table(path).to_batches(max_chunksize=_STREAMED_ROWS)


class LakehandStreaming(LakehandLocal):
    """The same, with row groups that travel through this machine also where S3 could copy them."""

    def compact(self, order: dict[str, Any]) -> dict[str, Any]:
        from lakehand import open_table

        table = open_table(order["table"], engine="local")
        return table.compact(**_wish(order), server_side_copy="never").to_json()


class LakehandOnOneCore(LakehandLocal):
    """The same with one task at a time."""

    def __init__(self, scratch: Path) -> None:
        _stay_on_one_core()
        super().__init__(scratch)


class Lance:
    """`dataset.optimize.compact_files()`."""

    def __init__(self, _scratch: Path) -> None:
        import lance

        self._open = lance.dataset

    def compact(self, order: dict[str, Any]) -> dict[str, Any]:
        dataset = self._open(order["table"])
        dataset.optimize.compact_files(target_rows_per_fragment=order["target_rows"])
        return {}


class LanceOnOneCore(Lance):
    """The same with one thread."""

    def __init__(self, scratch: Path) -> None:
        _stay_on_one_core()
        super().__init__(scratch)


def _stay_on_one_core() -> None:
    """Leave one core to this process, and to all threads and processes that it starts later."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


class UsersSpark:
    """A warm session with the settings of delta-spark's, as a user would start it."""

    def __init__(self, scratch: Path) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from pyspark.sql import SparkSession

        from lakehand.engine.session import find_java
        from support.oracle_server import CONFIGURATION

        os.environ["JAVA_HOME"] = str(find_java())
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master("local[*]").config("spark.local.dir", str(scratch))
        for name, value in (CONFIGURATION | _DELTA_SPARK | self._more(CONFIGURATION)).items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")

    def _more(self, _configuration: dict[str, str]) -> dict[str, str]:
        return {}


class DataSource(UsersSpark):
    """lakehand's data source in a session that knows nothing of lakehand."""

    def append(self, order: dict[str, Any]) -> dict[str, Any]:
        from lakehand.spark import LakehandSource

        self._spark.dataSource.register(LakehandSource)
        return _append_with_spark(self._spark, order, form="lakehand")


class RowsInPython(UsersSpark):
    """Spark hands rows to Python, which counts them: what every data source in Python waits for."""

    def append(self, order: dict[str, Any]) -> dict[str, Any]:
        def count(batches: Any) -> Any:
            import pyarrow as pa

            yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})

        epochs = _cached(self._spark, order)
        started = time.perf_counter()
        for epoch in epochs:
            epoch.mapInArrow(count, "rows long").collect()
        return {"seconds": time.perf_counter() - started}


class DeltaSpark(UsersSpark):
    """`OPTIMIZE` in a warm session."""

    def compact(self, order: dict[str, Any]) -> dict[str, Any]:
        for limit in ("minFileSize", "maxFileSize"):
            name = f"spark.databricks.delta.optimize.{limit}"
            self._spark.conf.set(name, order["target_file_bytes"])
        self._spark.sql(f"OPTIMIZE delta.`{order['table']}`").collect()
        return {}

    def cluster(self, order: dict[str, Any]) -> dict[str, Any]:
        wish = order["wish"]
        name = "spark.databricks.delta.optimize.maxFileSize"
        self._spark.conf.set(name, wish["target_file_bytes"])
        columns = ", ".join(wish["by"])
        self._spark.sql(f"OPTIMIZE delta.`{order['table']}` ZORDER BY ({columns})").collect()
        return {}

    def deduplicate(self, order: dict[str, Any]) -> dict[str, Any]:
        return by_delta_spark(self._spark, order["table"], way=order["way"])

    def query(self, order: dict[str, Any]) -> dict[str, Any]:
        rows = self._spark.read.format("delta").load(order["table"])
        asked = [rows.where(condition) for condition in order["conditions"]]
        started = time.perf_counter()
        answers = [list(one.selectExpr(*order["select"]).first()) for one in asked]
        return {
            "seconds": time.perf_counter() - started,
            "answers": answers,
            "files_read": sum(len(one.inputFiles()) for one in asked),
        }

    def vacuum(self, order: dict[str, Any]) -> dict[str, Any]:
        for name, value in _FAST_VACUUM.items():
            self._spark.conf.set(name, value)
        self._spark.sql(f"VACUUM delta.`{order['table']}`").collect()
        return {}

    def append(self, order: dict[str, Any]) -> dict[str, Any]:
        return _append_with_spark(self._spark, order, form="delta")

    def upsert(self, order: dict[str, Any]) -> dict[str, Any]:
        given = self._spark.read.parquet(order["source"]).cache()
        given.count()
        given.createOrReplaceTempView("given")
        equal = " AND ".join(f"t.{name} = s.{name}" for name in order["key"])
        started = time.perf_counter()
        self._spark.sql(
            f"MERGE INTO delta.`{order['table']}` t USING given s ON {equal}"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()
        seconds = time.perf_counter() - started
        given.unpersist()
        return {"seconds": seconds}

    def make_deleted(self, order: dict[str, Any]) -> dict[str, Any]:
        delete_with_spark(self._spark, order["sources"], order["table"])
        return {}


class DeltaSparkOnS3(DeltaSpark):
    """The same on S3A, whose jars are resolved with Delta's; the server is in the environment."""

    def _more(self, configuration: dict[str, str]) -> dict[str, str]:
        import pyspark

        [jar] = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
        version = jar.stem.rpartition("-")[2]
        s3a = {
            "endpoint": os.environ["AWS_ENDPOINT_URL"],
            "endpoint.region": os.environ["AWS_REGION"],
            "access.key": os.environ["AWS_ACCESS_KEY_ID"],
            "secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
        }
        packages = f"{configuration['spark.jars.packages']},org.apache.hadoop:hadoop-aws:{version}"
        return {
            "spark.jars.packages": packages,
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        }

    def compact(self, order: dict[str, Any]) -> dict[str, Any]:
        return super().compact(_on_s3a(order))

    def cluster(self, order: dict[str, Any]) -> dict[str, Any]:
        return super().cluster(_on_s3a(order))

    def append(self, order: dict[str, Any]) -> dict[str, Any]:
        return super().append(_on_s3a(order))

    def vacuum(self, order: dict[str, Any]) -> dict[str, Any]:
        return super().vacuum(_on_s3a(order))


def _on_s3a(order: dict[str, Any]) -> dict[str, Any]:
    return {**order, "table": order["table"].replace("s3://", "s3a://")}


class DeltaRs:
    """`DeltaTable.optimize.compact`, with the codec that the table has."""

    def __init__(self, _scratch: Path) -> None:
        from deltalake import WriterProperties

        # Its default is zstd, which would cost it a third more time than the others.
        self._properties = WriterProperties(compression="SNAPPY")

    def compact(self, order: dict[str, Any]) -> dict[str, Any]:
        from deltalake import DeltaTable

        return DeltaTable(order["table"]).optimize.compact(
            target_size=order["target_file_bytes"], writer_properties=self._properties
        )

    def cluster(self, order: dict[str, Any]) -> dict[str, Any]:
        from deltalake import DeltaTable

        return DeltaTable(order["table"]).optimize.z_order(
            order["wish"]["by"],
            target_size=order["wish"]["target_file_bytes"],
            writer_properties=self._properties,
        )

    def deduplicate(self, order: dict[str, Any]) -> dict[str, Any]:
        return by_delta_rs(order["table"])

    def upsert(self, order: dict[str, Any]) -> dict[str, Any]:
        import pyarrow.parquet as pq
        from deltalake import DeltaTable

        given = pq.read_table(order["source"])
        equal = " AND ".join(f"t.{name} = s.{name}" for name in order["key"])
        started = time.perf_counter()
        merge = DeltaTable(order["table"]).merge(
            given, equal, source_alias="s", target_alias="t", writer_properties=self._properties
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return {"seconds": time.perf_counter() - started}

    def vacuum(self, order: dict[str, Any]) -> dict[str, Any]:
        from deltalake import DeltaTable

        return {"deleted": len(DeltaTable(order["table"]).vacuum(dry_run=False, full=True))}

    def append(self, order: dict[str, Any]) -> dict[str, Any]:
        import pyarrow as pa
        from deltalake import write_deltalake

        epochs = [pa.Table.from_batches(_batches(path)) for path in order["sources"]]
        started = time.perf_counter()
        for epoch in epochs:
            write_deltalake(order["table"], epoch, mode="append")
        return {"seconds": time.perf_counter() - started}


class DuckDbCopy:
    """Read the files, write their rows; nothing is checked and no table knows of it."""

    def __init__(self, _scratch: Path) -> None:
        import duckdb

        self._connection = duckdb.connect()
        # Its progress bar would stand between the results.
        self._connection.execute("SET enable_progress_bar = false")

    def deduplicate(self, order: dict[str, Any]) -> dict[str, Any]:
        return by_duckdb(self._connection, order["table"], into=Path(order["table"]) / OUTPUT)

    def compact(self, order: dict[str, Any]) -> dict[str, Any]:
        table = Path(order["table"])
        files = [str(path) for path in data_files(table)]
        column = order["partition_by"]
        (table / OUTPUT).mkdir()
        self._connection.execute(
            f"COPY (FROM read_parquet({files}, hive_partitioning = {bool(column)})) "
            f"{_target(table / OUTPUT, column, order['files_out'])}"
        )
        return {}


def _target(output: Path, column: str | None, files_out: int) -> str:
    as_before = "FORMAT parquet, COMPRESSION snappy"
    if column:
        return f"TO '{output}' ({as_before}, PARTITION_BY ({column}))"
    if files_out == 1:
        return f"TO '{output}/all.parquet' ({as_before})"
    return f"TO '{output}' ({as_before}, PER_THREAD_OUTPUT)"


class CopiedBytes:
    """Move the bytes into as many files as there will be, and have them on disk: the floor."""

    def __init__(self, _scratch: Path) -> None: ...

    def compact(self, order: dict[str, Any]) -> dict[str, Any]:
        table = Path(order["table"])
        target = table / OUTPUT
        target.mkdir()
        partitions = groupby(data_files(table), key=lambda path: path.parent)
        groups = [group for _, files in partitions for group in _shares(files, order["files_out"])]
        for number, group in enumerate(groups):
            _concatenate(group, target / f"{number}.bytes")
        _sync(target)
        return {}


def _shares(files: Any, count: int) -> list[tuple[Path, ...]]:
    found = tuple(files)
    size = -(-len(found) // count)
    return [found[start : start + size] for start in range(0, len(found), size)]


def _concatenate(files: tuple[Path, ...], target: Path) -> None:
    with target.open("wb") as output:
        for file in files:
            with file.open("rb") as source:
                while os.sendfile(output.fileno(), source.fileno(), None, _CHUNK_BYTES):
                    pass
        os.fsync(output.fileno())


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


CONTENDERS = {
    "lakehand-spark": LakehandOnSpark,
    "lakehand-cluster": LakehandOnCluster,
    "lakehand-local": LakehandLocal,
    "lakehand-source": DataSource,
    "lakehand-one-core": LakehandOnOneCore,
    "lakehand-streaming": LakehandStreaming,
    "lance": Lance,
    "lance-one-core": LanceOnOneCore,
    "delta-rs": DeltaRs,
    "delta-spark": DeltaSpark,
    "delta-spark-s3a": DeltaSparkOnS3,
    "spark-rows": RowsInPython,
    "duckdb": DuckDbCopy,
    "bytes": CopiedBytes,
}


def answer(contender: Any, line: str) -> dict[str, Any]:
    request = json.loads(line)
    work = getattr(contender, request.pop("method"))
    started = time.perf_counter()
    try:
        report = work(request)
    except Exception as error:  # noqa: BLE001  whatever fails is this contender's result
        return {"error": f"{type(error).__name__}: {error}"[:2000]}
    return {"seconds": time.perf_counter() - started, "report": report}


def main(name: str, scratch: Path) -> None:
    # What libraries print goes elsewhere; answers go through a private copy of standard output.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    contender = CONTENDERS[name](scratch)
    print(json.dumps({"seconds": 0, "report": {}}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(contender, line), default=str), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
