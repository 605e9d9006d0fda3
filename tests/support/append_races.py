"""Writers of two kinds that append to one table, each in a process of its own.

The other kind is the last delta-rs that commits through DynamoDB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from support.unmeasured import unmeasured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltalake import DeltaTable

DELTA_RS = Path(__file__).parents[2] / ".cache" / "deltalake-1.5.1"
TIMEOUT_SECONDS = 1400
_NAMES = {
    "endpoint": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "allow_http": "AWS_ALLOW_HTTP",
    "locking_provider": "AWS_S3_LOCKING_PROVIDER",
    "locking_table": "DELTA_DYNAMO_TABLE_NAME",
    "locking_endpoint": "AWS_ENDPOINT_URL_DYNAMODB",
    "locking_access_key_id": "AWS_ACCESS_KEY_ID_DYNAMODB",
    "locking_secret_access_key": "AWS_SECRET_ACCESS_KEY_DYNAMODB",
}


def start_writer(
    kind: str, uri: str, options: Mapping[str, str], ids: Sequence[int]
) -> subprocess.Popen[str]:
    """Start a process that appends each of `ids` by one commit once it is sent a line."""
    path = [*sys.path] if kind == "lakehand" else [str(DELTA_RS), *sys.path]
    work = {"kind": kind, "uri": uri, "options": dict(options), "ids": list(ids)}
    return subprocess.Popen(
        [sys.executable, "-m", "support.append_races"],
        env={**unmeasured(), "PYTHONPATH": os.pathsep.join(path), "RACE": json.dumps(work)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def append_all(kind: str, uri: str, options: Mapping[str, str], ids: Sequence[int]) -> None:
    """Append in a process of its own, and fail if it does."""
    end([begin(start_writer(kind, uri, options, ids))])


def begin(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    process.stdin.write("go\n")
    process.stdin.flush()
    return process


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        _, said = process.communicate(timeout=TIMEOUT_SECONDS)
        assert process.returncode == 0, said


def main() -> None:
    work = json.loads(os.environ["RACE"])
    append = {"lakehand": _lakehand, "delta-rs": _delta_rs}[work["kind"]]
    print("ready", flush=True)
    sys.stdin.readline()
    for number in work["ids"]:
        append(work["uri"], work["options"], pa.table({"id": pa.array([number], pa.int64())}))


def _lakehand(uri: str, options: dict[str, str], rows: pa.Table) -> None:
    import lakehand

    lakehand.open_table(uri, storage_options=options).append(rows)


def _delta_rs(uri: str, options: dict[str, str], rows: pa.Table) -> None:
    from deltalake import CommitProperties, write_deltalake

    write_deltalake(
        _open_with_delta_rs(uri, {_NAMES[name]: value for name, value in options.items()}),
        rows,
        mode="append",
        commit_properties=CommitProperties(max_commit_retries=500),
    )


def _open_with_delta_rs(uri: str, options: dict[str, str]) -> DeltaTable:
    """Open a table; delta-rs cannot while another writer is between its copy and its mark."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    for _ in range(20):
        try:
            return DeltaTable(uri, storage_options=options)
        except DeltaError as error:
            if "already exists" not in str(error):
                raise
            time.sleep(0.2)
    return DeltaTable(uri, storage_options=options)


if __name__ == "__main__":
    main()
