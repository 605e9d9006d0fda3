"""Count the S3 requests of each verb, as the log of a server has them.

    python benchmarks/count_requests.py

prints the table of docs/guides/s3-operations.md. Prices are Amazon's for S3 Standard in us-east-1.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import lakehand
from support.later_vacuums import vacuum_later
from support.s3_server import run_s3_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES = 100
#: USD for a thousand requests; deletions are free.
PRICES = {"PUT": 0.005, "LIST": 0.005, "GET": 0.0004, "HEAD": 0.0004, "DELETE": 0.0}
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
_OPERATION = re.compile(r" s3_(\w+) ")
#: How the names of operations begin in the log; parts of an upload are priced as PUT.
KINDS = {
    "LIST": "List",
    "GET": "GetObject",
    "HEAD": "HeadObject",
    "DELETE": ("Delete", "Abort"),
    "PUT": ("PutObject", "CreateMultipart", "UploadPart", "CompleteMultipart"),
}


def rows(first: int, count: int = 10) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": list(ids), "name": [str(number) for number in ids]}, schema=SCHEMA)


def verbs(options: dict[str, str], uri: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Return what is counted, in the order in which it is done to one table."""
    table = lakehand.open_table(uri, storage_options=options)
    again = lakehand.open_table(uri, storage_options=options)
    yield "read the newest version of an unopened table", again.snapshot
    yield "`inspect`", table.inspect
    yield "`plan`", lambda: table.plan(min_files=2)
    yield "`health`", table.health
    yield "`verify`", table.verify
    yield "read all rows", table.to_arrow
    yield "`append` of one file", lambda: table.append(rows(5000))
    yield "`upsert` of ten rows", lambda: table.upsert(rows(10), key=["id"])
    yield "`delete` of ten rows", lambda: table.delete(where="id < 10")
    yield "`checkpoint`", table.checkpoint
    yield "`compact` of all files", lambda: table.compact(min_files=2)
    yield "`vacuum` of the files that it replaced", lambda: vacuum_later(table._handle.store)
    yield "`maintain` with nothing to do", table.maintain


def count(log: Path, start: int) -> Counter[str]:
    """Count the requests of the lines after `start`, by what they are priced as."""
    names = _OPERATION.findall("\n".join(log.read_text().splitlines()[start:]))
    return Counter(
        next(kind for kind, of in KINDS.items() if name.startswith(of)) for name in names
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "access.log"
        os.environ["VGW_ACCESS_LOG"] = os.environ["LOGFILE"] = str(log)
        with run_s3_server(Path(directory) / "data") as server:
            uri = server.new_uri()
            table = lakehand.create_table(
                uri,
                SCHEMA,
                storage_options=server.options,
                properties={"delta.enableDeletionVectors": "true"},
            )
            for number in range(FILES):
                table.append(rows(number * 10))
            table.compact(min_files=FILES * 2)  # starts what only the first call needs
            print("| | LIST | GET | HEAD | PUT | DELETE | USD per 1,000 runs |")
            print("|---|---|---|---|---|---|---|")
            for name, run in verbs(server.options, uri):
                start = len(log.read_text().splitlines())
                run()
                found = count(log, start)
                price = sum(PRICES[kind] * number for kind, number in found.items())
                kinds = ("LIST", "GET", "HEAD", "PUT", "DELETE")
                numbers = " | ".join(str(found[kind]) for kind in kinds)
                print(f"| {name} | {numbers} | {price:.2f} |", flush=True)


if __name__ == "__main__":
    main()
