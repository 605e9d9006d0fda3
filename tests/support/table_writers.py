"""Other engines that write into a table, and a model of all that they were told has happened.

Writes are plain values, said to delta-spark as SQL and to delta-rs as calls. A writer that loses
against somebody else tries again, as its users must; a write is acknowledged when its call returns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from support.oracle import Oracle, OracleError
from support.unmeasured import unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PARTITIONS = ("p0", "p1", "p2")
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.int64())])
#: How often a writer tries before it gives a write up.
TRIES = 20

_ANSWER_SECONDS = 120
_LOST = ("CONCURRENT", "Concurrent")


@dataclass(frozen=True, kw_only=True)
class Write:
    """What is done to the rows with ids from `first` up to, but not including, `last`."""

    kind: Literal["append", "delete", "update", "merge"]
    first: int
    last: int
    value: int = 0
    #: Only the rows of this partition are touched.
    part: str | None = None
    #: Found again in the commit.
    mark: str = ""

    @property
    def condition(self) -> str:
        of_part = f" AND part = '{self.part}'" if self.part else ""
        return f"id >= {self.first} AND id < {self.last}{of_part}"

    def rows(self) -> pa.Table:
        ids = range(self.first, self.last)
        return _table(ids, [self.value] * len(ids))


class Model:
    """The rows of a table after some writes, one after the other."""

    def __init__(self, writes: Iterable[Write] = ()) -> None:
        self._values: dict[int, int] = {}
        for write in writes:
            self.apply(write)

    def touched(self, write: Write) -> list[int]:
        """Return the ids that a write would change; without any, engines commit nothing."""
        inserts = write.kind in {"append", "merge"}
        return [
            i
            for i in range(write.first, write.last)
            if write.part in {None, PARTITIONS[i % 3]} and (inserts or i in self._values)
        ]

    def apply(self, write: Write) -> None:
        for i in self.touched(write):
            if write.kind == "delete":
                del self._values[i]
            else:
                self._values[i] = write.value

    def rows(self) -> pa.Table:
        return _table(self._values, self._values.values())


def _table(ids: Iterable[int], values: Iterable[int]) -> pa.Table:
    columns = [list(ids), [PARTITIONS[i % 3] for i in ids], list(values)]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


@dataclass(kw_only=True)
class Effort:
    """What one acknowledged write took."""

    seconds: float
    #: Times that it was lost against somebody else, and against lakehand among them.
    lost: int
    lost_to_lakehand: int


class Engine(Protocol):
    """Does one write once; LostError if somebody else was faster."""

    def do(self, write: Write) -> None: ...


class GaveUpError(Exception):
    """A write was lost too often; nothing of it is in the table."""


class LostError(Exception):
    """A commit of somebody else made the write impossible; nothing was written."""


@dataclass(kw_only=True)
class Writer:
    """Uses an engine as its users must, and remembers what was acknowledged."""

    engine: Engine
    log: Path
    acknowledged: list[Write] = field(default_factory=list)
    efforts: list[Effort] = field(default_factory=list)

    def write(self, write: Write) -> Effort:
        started, effort = time.monotonic(), Effort(seconds=0, lost=0, lost_to_lakehand=0)
        while not self._try(write, effort):
            if effort.lost == TRIES:
                raise GaveUpError(f"{write} was lost {TRIES} times")
        effort.seconds = time.monotonic() - started
        self.acknowledged.append(write)
        self.efforts.append(effort)
        return effort

    def _try(self, write: Write, effort: Effort) -> bool:
        before = versions(self.log)
        try:
            self.engine.do(write)
        except LostError:
            effort.lost += 1
            winners = set(versions(self.log)) - set(before)
            effort.lost_to_lakehand += any(is_by_lakehand(self.log, winner) for winner in winners)
            return False
        return True


@dataclass(frozen=True)
class SparkEngine:
    """delta-spark, in SQL."""

    oracle: Oracle
    place: Path
    #: Held there until the test lets it go on, in the middle of a merge.
    gate: Path | None = None

    def do(self, write: Write) -> None:
        mark = {"spark.databricks.delta.commitInfo.userMetadata": write.mark}
        try:
            with self.oracle.configured(mark):
                self.oracle.sql(self._statement(write), fresh=False)
        except OracleError as error:
            if any(word in str(error) for word in _LOST):
                raise LostError(str(error)) from error
            raise

    def _statement(self, write: Write) -> str:
        table = f"delta.`{self.place}`"
        held = f"hold_at('{self.gate}')" if self.gate else "true"
        rows = (
            f"SELECT id, concat('p', id % 3) AS part, CAST({write.value} AS BIGINT) AS value"
            f" FROM range({write.first}, {write.last}, 1, 1)"
        )
        return {
            "append": f"INSERT INTO {table} {rows}",
            "delete": f"DELETE FROM {table} WHERE {write.condition}",
            "update": f"UPDATE {table} SET value = {write.value} WHERE {write.condition}",
            "merge": f"MERGE INTO {table} t USING (SELECT * FROM ({rows}) WHERE {held}) s"
            " ON t.id = s.id AND t.part = s.part WHEN MATCHED THEN UPDATE SET value = s.value"
            " WHEN NOT MATCHED THEN INSERT *",
        }[write.kind]


class DeltaRsEngine:
    """delta-rs, in a process of its own."""

    def __init__(self, place: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.table_writers", str(place)],
            env={**unmeasured(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self) -> None:
        """Let it read the table now: its next write starts from this version."""
        self._ask({"read": True})

    def do(self, write: Write) -> None:
        self._ask(asdict(write))

    def _ask(self, request: Mapping[str, Any]) -> None:
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline() or '{"failed": "it has ended"}')
        if "lost" in answer:
            raise LostError(answer["lost"])
        if "failed" in answer:
            raise AssertionError(f"delta-rs: {answer['failed']}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(_ANSWER_SECONDS)
        self._process.stdout.close()


class _DeltaRs:
    """The process behind `DeltaRsEngine`."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._table: DeltaTable | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        table = self._table or DeltaTable(self._place)
        self._table = None
        if "read" in request:
            self._table = table
            return {"version": table.version()}
        try:
            self._do(table, Write(**request))
        except CommitFailedError as error:
            return {"lost": str(error)}
        except Exception as error:  # noqa: BLE001  told to whoever asked
            return {"failed": f"{type(error).__name__}: {error}"}
        return {}

    def _do(self, table: DeltaTable, write: Write) -> None:
        options = {
            "commit_properties": CommitProperties(custom_metadata={"userMetadata": write.mark})
        }
        if write.kind == "append":
            write_deltalake(table, write.rows(), mode="append", **options)
        elif write.kind == "delete":
            table.delete(write.condition, **options)
        elif write.kind == "update":
            table.update({"value": str(write.value)}, predicate=write.condition, **options)
        else:
            same = "t.id = s.id AND t.part = s.part"
            merge = table.merge(write.rows(), same, source_alias="s", target_alias="t", **options)
            merge.when_matched_update({"value": "s.value"}).when_not_matched_insert_all().execute()


def versions(log: Path) -> list[int]:
    return sorted(int(path.stem) for path in log.glob("*.json") if path.stem.isdigit())


def is_by_lakehand(log: Path, version: int) -> bool:
    return "lakehand" in _commit_info(log, version)


def marks_in(log: Path) -> list[str]:
    """Return the marks of all commits that have one."""
    infos = (_commit_info(log, version) for version in versions(log))
    return [info["userMetadata"] for info in infos if info.get("userMetadata")]


def _commit_info(log: Path, version: int) -> dict[str, Any]:
    lines = (log / f"{version:020}.json").read_text().splitlines()
    infos = (json.loads(line).get("commitInfo") for line in lines)
    return next((info for info in infos if info), {})


def create_table(oracle: Oracle, place: Path, *, partitioned: bool, vectors: bool) -> None:
    tail = "PARTITIONED BY (part)" if partitioned else ""
    oracle.sql(
        f"CREATE TABLE delta.`{place}` (id BIGINT, part STRING, value BIGINT) USING delta {tail}"
        f" TBLPROPERTIES ('delta.enableDeletionVectors' = '{str(vectors).lower()}')"
    )


def main(place: str) -> None:
    process = _DeltaRs(place)
    for line in sys.stdin:
        print(json.dumps(process.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
