"""Small good Delta tables whose bytes a test then damages: between them they use every action."""

from __future__ import annotations

import json
import random
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakehand
from lakehand.formats.delta.checkpoints.last_checkpoint import LastCheckpoint, write_last_checkpoint
from lakehand.storage import open_store
from support.checkpoints import put_checkpoint
from support.compactions import leave_dead_run
from support.later_vacuums import vacuum_later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string()), ("amount", pa.float64())])
_EVERYTHING = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableInCommitTimestamps": "true",
    "delta.enableChangeDataFeed": "true",
}
_LOG = "_delta_log"


@dataclass(frozen=True)
class Base:
    """A table, and how to make it in a directory that is not there yet."""

    name: str
    make: Callable[[Path], None]
    #: Whether a checkpoint of the newest version repeats all that the commits say, and they are
    #: all there: then each is a witness against the other.
    is_witnessed: bool = True


def rows(start: int, count: int = 8) -> pa.Table:
    ids = range(start, start + count)
    return pa.table(
        {"id": ids, "region": ["eu", "us"] * (count // 2), "amount": [i / 4 for i in ids]},
        schema=SCHEMA,
    )


@contextmanager
def _seeded_names() -> Iterator[None]:
    """Make the names of files the same in every run, so that a seed always means the same bytes."""
    numbers, original = random.Random(7), uuid.uuid4
    uuid.uuid4 = lambda: uuid.UUID(int=numbers.getrandbits(128), version=4)
    try:
        yield
    finally:
        uuid.uuid4 = original


def _create(path: Path, *, partition_by: Any = ("region",), **properties: str) -> lakehand.Table:
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return lakehand.create_table(
        path, SCHEMA, partition_by=partition_by, properties=named, engine="local"
    )


def _fill(table: lakehand.Table) -> lakehand.Table:
    for epoch in (1, 2, 3):
        table.append(rows(epoch * 8), epoch=epoch, writer_id="sink")
    return table


def _plain(path: Path) -> None:
    """No checkpoint, no partitions: what the commits say is all there is."""
    _fill(_create(path, partition_by=()))


def _partitioned(path: Path) -> None:
    table = _fill(_create(path))
    table.compact(min_files=2)
    table.append(rows(80))
    table.checkpoint()
    _put_checksum(path)


def _everything(path: Path, **more: str) -> None:
    """Every action that there is, in commits alone."""
    table = _fill(_create(path, **_EVERYTHING, **more))
    table.delete(where="id % 5 = 1")
    table.upsert(rows(12, 2), key=["id"])


def _everything_twice(path: Path, **more: str) -> None:
    """Every action that there is, in commits and in a checkpoint."""
    _everything(path, **more)
    lakehand.open_table(path).checkpoint()


def _version_2(path: Path) -> None:
    _everything_twice(path, **{"delta.checkpointPolicy": "v2"})


def _with_checkpoint(kind: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        features = {} if kind == "multipart" else {"delta.feature.v2Checkpoint": "supported"}
        _fill(_create(path, **features))
        actions = [line for version in range(4) for line in actions_of(path, version)]
        newest = {line["txn"]["appId"]: line for line in actions if "txn" in line}
        kept = [line for line in actions if line.keys() & {"protocol", "metaData", "add"}]
        put_checkpoint(open_store(path), 3, [*kept, *newest.values()], kind)
        parts = 2 if kind == "multipart" else None
        write_last_checkpoint(open_store(path), LastCheckpoint(version=3, part_count=parts))

    return make


def _worked_on(path: Path) -> None:
    """A run that died, a pin, files in quarantine and a stored plan: what lakehand keeps."""
    table = _fill(_create(path))
    table.pin("keep", version=1)
    table.overwrite(rows(200))
    (path / "orphan.parquet").write_bytes(b"PAR1")
    vacuum_later(path, days=30, grace="24h")
    table.append(rows(300))
    (path / "plan.json").write_text(json.dumps(table.plan(min_files=2).to_json()))
    leave_dead_run(path, min_files=2)


def _lance(path: Path) -> None:
    table = lakehand.create_table(path, SCHEMA, format="lance", engine="local")
    for start in (0, 8, 16):
        table.append(rows(start))
    table.delete(where="id % 5 = 1")


BASES = {
    base.name: base
    for base in (
        Base("plain", _plain, is_witnessed=False),
        Base("partitioned", _partitioned),
        Base("everything", _everything, is_witnessed=False),
        Base("everything-twice", _everything_twice),
        Base("v2", _version_2),
        Base("multipart", _with_checkpoint("multipart")),
        Base("v2-json", _with_checkpoint("v2-json")),
        Base("v2-parquet", _with_checkpoint("v2-parquet")),
        Base("worked-on", _worked_on, is_witnessed=False),
        Base("lance", _lance, is_witnessed=False),
    )
}


def make_base(root: Path, name: str) -> Path:
    """Make a table in the directory of its name, unless it is there."""
    path = root / name
    if not path.exists():
        with _seeded_names():
            BASES[name].make(path)
    return path


def actions_of(path: Path, version: int) -> list[dict[str, Any]]:
    text = (path / _LOG / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def _put_checksum(path: Path) -> None:
    """Write the checksum file of the newest version, as delta-spark does."""
    table = lakehand.open_table(path)
    snapshot = table.snapshot()
    stated = {
        "tableSizeBytes": snapshot.total_bytes,
        "numFiles": snapshot.file_count,
        "numMetadata": 1,
        "numProtocol": 1,
        "protocol": snapshot.native.protocol.to_json(),
        "metadata": snapshot.native.metadata.to_json(),
    }
    (path / _LOG / f"{snapshot.version:020}.crc").write_text(json.dumps(stated))
