"""Writers that race for versions of one table, each in a process of its own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakehand.errors import CommitConflictError
from lakehand.formats.delta.log.listing import find_segment
from lakehand.formats.delta.table import DeltaTable
from lakehand.model.work import Change, StagedFile
from lakehand.storage import open_store
from support.unmeasured import unmeasured

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA = pa.schema([("id", pa.int64())])
#: Every commit in so many is a removal of a file that was read before.
REMOVE_EVERY = 6
#: Removers choose among so few files that they meet.
CONTESTED_FILES = 3

_TIMEOUT_SECONDS = 240


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What a writer says about one commit that it tried."""

    token: str
    path: str
    is_removal: bool
    #: Version it claims; None if it says that it lost.
    version: int | None
    tries: int = 0


def race(
    uri: str | Path, options: Mapping[str, str] | None, *, writers: int, commits: int
) -> list[Attempt]:
    """Let `writers` processes make `commits` commits each, and return what each of them says."""
    processes = [_start(str(uri), options or {}, seed, commits) for seed in range(writers)]
    for process in processes:
        # All have opened the table and wait for this line, so that none has a head start.
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    attempts: list[Attempt] = []
    for process in processes:
        out, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
        assert process.returncode == 0, errors
        attempts += [Attempt(**json.loads(line)) for line in out.splitlines()]
    return attempts


def _start(uri: str, options: Mapping[str, str], seed: int, commits: int) -> subprocess.Popen[str]:
    work = json.dumps({"uri": uri, "options": dict(options), "seed": seed, "commits": commits})
    return subprocess.Popen(
        [sys.executable, "-m", "support.commit_races"],
        env={**unmeasured(), "PYTHONPATH": os.pathsep.join(sys.path), "RACE": work},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Writer:
    """Appends files and removes files that it has read."""

    def __init__(self, uri: str, options: Mapping[str, str], seed: int) -> None:
        self.table = DeltaTable(open_store(uri, options))
        self.random = random.Random(seed)

    def append(self) -> Attempt:
        path = f"part-{uuid.uuid4()}.parquet"
        with self.table.store.open_writer(path) as sink:
            pq.write_table(pa.table({"id": [1]}, schema=SCHEMA), sink)
            size = sink.tell()
        native = {"partitionValues": {}, "stats": '{"numRecords":1}'}
        file = StagedFile(path=path, bytes=size, rows=1, native=native)
        base = find_segment(self.table.store).version
        return self.commit(path, kind="append", base_version=base, operation="WRITE", adds=(file,))

    def remove(self) -> Attempt | None:
        snapshot = self.table.snapshot()
        if snapshot.file_count == 0:
            return None
        chosen = self.random.randrange(min(snapshot.file_count, CONTESTED_FILES))
        [file] = self.table.data_files(snapshot, [chosen])
        base = snapshot.version
        return self.commit(
            file.path, kind="delete", base_version=base, operation="DELETE", removes=(file,)
        )

    def commit(self, path: str, **change: Any) -> Attempt:
        token = str(uuid.uuid4())
        removes = bool(change.get("removes"))
        try:
            receipt = self.table.commit(Change(**change), token=token)
        except CommitConflictError:
            return Attempt(token=token, path=path, is_removal=removes, version=None)
        return Attempt(
            token=token,
            path=path,
            is_removal=removes,
            version=receipt.version,
            tries=receipt.attempts,
        )


def main() -> None:
    work = json.loads(os.environ["RACE"])
    writer = Writer(work["uri"], work["options"], work["seed"])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(work["commits"]):
        removes = number % REMOVE_EVERY == REMOVE_EVERY - 1
        attempt = (writer.remove() if removes else None) or writer.append()
        print(json.dumps(asdict(attempt)))


if __name__ == "__main__":
    main()
