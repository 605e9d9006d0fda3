"""Work on an S3 server whose answers take 20 ms longer; every request is counted.

The server is versitygw on this machine, behind a proxy on the loopback interface that delays and
counts. A request costs money, so the goal is to need fewer than the others for every operation, and
that a compaction of large row groups moves less than 5 % of its bytes through this machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from contest import Contender
from sections import ROOT, Section, ask, circumstances, head, in_words, median, row

sys.path.insert(0, str(ROOT / "tests"))

from deltalake import DeltaTable, write_deltalake

from support.faulty_proxy import run_faulty_proxy
from support.s3_server import S3Server, run_s3_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.faulty_proxy import FaultyProxy

#: `delta-spark-s3a` takes part if it is asked for: its jars, 690 MB, come from Maven Central.
CONTENDERS = ("lakehand-local", "lakehand-streaming", "delta-rs")
LABELS = {
    "lakehand-local": "**lakehand**",
    "lakehand-streaming": "lakehand, `server_side_copy=never`",
    "delta-rs": "delta-rs",
    "delta-spark-s3a": "delta-spark, S3A",
}
TITLES = ("", "requests", "GET", "HEAD", "LIST", "PUT", "POST", "DELETE", "MB moved", "CPU s")
KINDS = ("GET", "HEAD", "LIST", "PUT", "POST", "DELETE")
LATENCY_SECONDS = 0.02
#: Requests are the same in every run.
RUNS = 1
MIB = 2**20
SMALL_FILES, SMALL_ROWS = 100, 1_000
LARGE_FILES, LARGE_ROWS, ROW_BYTES = 8, 16_000, 1_024
CLUSTER_FILES, CLUSTER_ROWS = 20, 20_000
EPOCHS, EPOCH_ROWS = 20, 1_000
ORPHANS = 2_000
MONTH_SECONDS = 30 * 24 * 3600
GOAL_MOVED = 0.05


def rows(seed: int, count: int) -> pa.Table:
    """Return rows of a plausible stream."""
    chance = np.random.default_rng(seed)
    return pa.table({
        "id": np.arange(seed * count, (seed + 1) * count),
        "device": chance.integers(0, 5_000, count),
        "x": chance.normal(size=count),
        "note": [f"note {number}" for number in chance.integers(0, 10**6, count)],
    })  # fmt: skip


def noise(seed: int, count: int) -> pa.Table:
    """Return rows that no codec makes smaller."""
    data = pa.py_buffer(np.random.default_rng(seed).bytes(count * ROW_BYTES))
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(ROW_BYTES), count, [None, data])
    ids = np.arange(seed * count, (seed + 1) * count)
    return pa.table({"id": ids, "value": values.cast(pa.binary())})


def _files(uri: str, options: dict[str, str], make: Callable, count: int, size: int) -> None:
    for number in range(count):
        write_deltalake(uri, make(number, size), mode="append", storage_options=options)


def _orphans(uri: str, options: dict[str, str], server: S3Server) -> None:
    """Make a table with one live file among thousands of last month that no version names."""
    write_deltalake(uri, rows(0, 10), storage_options=options)
    folder = server.directory / uri.rsplit("/", 1)[-1]
    past = time.time() - MONTH_SECONDS
    for number in range(ORPHANS):
        path = folder / f"part-{number:05}-old.snappy.parquet"
        path.write_bytes(b"PAR1")
        os.utime(path, (past, past))


#: Operation: its title, the request to a contender, and what makes its table.
OPERATIONS = {
    "compact small": f"compact: {SMALL_FILES} files of {SMALL_ROWS:,} rows into one",
    "compact large": f"compact: {LARGE_FILES} files of 16 MB, row groups copied",
    "cluster": f"cluster: {CLUSTER_FILES} files of {CLUSTER_ROWS:,} rows by one column",
    "sink": f"sink: {EPOCHS} epochs of {EPOCH_ROWS:,} rows, each committed",
    "vacuum": f"vacuum: {ORPHANS:,} old files that no version names",
}
WISH = {"by": ["device"], "target_file_bytes": 128 * MIB}


def make_tables(server: S3Server, options: dict[str, str]) -> dict[str, str]:
    """Make what every run gets a copy of; return the name of each directory."""
    names = {operation: operation.replace(" ", "-") for operation in OPERATIONS}
    uris = {operation: f"s3://{server.bucket}/{name}" for operation, name in names.items()}
    _files(uris["compact small"], options, rows, SMALL_FILES, SMALL_ROWS)
    _files(uris["compact large"], options, noise, LARGE_FILES, LARGE_ROWS)
    _files(uris["cluster"], options, rows, CLUSTER_FILES, CLUSTER_ROWS)
    _orphans(uris["vacuum"], options, server)
    return names


def order_of(operation: str, table: str, sources: list[str]) -> tuple[str, dict]:
    if operation.startswith("compact"):
        size = {"target_file_bytes": 512 * MIB, "files_out": 1, "partition_by": None}
        return "compact", {"table": table, **size}
    if operation == "cluster":
        return "cluster", {"table": table, "wish": WISH}
    if operation == "sink":
        return "append", {"table": table, "sources": sources}
    return "vacuum", {"table": table}


def kind_of(method: str, path: str) -> str:
    """Return how a request is priced and named."""
    if method == "GET" and ("list-type=" in path or "?uploads" in path or "prefix=" in path):
        return "LIST"
    return "DELETE" if "?delete" in path else method


def main() -> None:
    chosen = _arguments()
    if not chosen.draw:
        found = measure(chosen)
        is_full = set(found["results"]) == {*OPERATIONS} and chosen.runs >= RUNS
        is_full = is_full and chosen.contenders == ",".join(CONTENDERS)
        SECTION.keep(found, is_full=is_full)
        if not is_full:
            return
    found = SECTION.draw()
    missed = missed_goals(found["results"])
    sys.exit("missed: " + "; ".join(missed) if missed else 0)


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--operations", default=",".join(OPERATIONS))
    options.add_argument("--runs", type=int, default=RUNS)
    options.add_argument("--contenders", default=",".join(CONTENDERS))
    options.add_argument("--draw", action="store_true", help="renew the page from stored results")
    return options.parse_args()


def measure(chosen: argparse.Namespace) -> dict:
    """Let the contenders do every operation in turns, each on a copy of its table."""
    about = {**circumstances(), "latency_ms": LATENCY_SECONDS * 1000}
    results: dict[str, dict] = {name: {} for name in chosen.operations.split(",")}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(run_s3_server(scratch / "data"))
        proxy = stack.enter_context(run_faulty_proxy(server.endpoint))
        direct = _as_variables(server.options)
        os.environ |= {**direct, "AWS_ENDPOINT_URL": proxy.endpoint}
        names = make_tables(server, {**direct, "AWS_ENDPOINT_URL": server.endpoint})
        sources = _sources(scratch)
        contenders = [
            stack.enter_context(Contender(name, scratch, timeout_seconds=600))
            for name in chosen.contenders.split(",")
        ]
        proxy.latency_seconds = LATENCY_SECONDS
        for number in range(chosen.runs):
            for operation, by_name in results.items():
                for contender in contenders:
                    if contender.name == "lakehand-streaming" and operation != "compact large":
                        continue
                    result = by_name.setdefault(contender.name, {"runs": []})
                    place = f"{names[operation]}-{contender.name}-{number}"
                    _copy(server, names[operation], place)
                    _run(
                        contender, result, proxy, order_of(operation, _uri(server, place), sources)
                    )
                    if "error" not in result:
                        _check(operation, contender, _uri(server, place), server, direct)
    return {**about, "results": results}


def _as_variables(options: dict[str, str]) -> dict[str, str]:
    names = {"region": "AWS_REGION", "access_key_id": "AWS_ACCESS_KEY_ID"}
    names |= {"secret_access_key": "AWS_SECRET_ACCESS_KEY", "allow_http": "AWS_ALLOW_HTTP"}
    return {names[name]: value for name, value in options.items() if name in names}


def _sources(scratch: Path) -> list[str]:
    paths = [str(scratch / f"epoch-{number}.parquet") for number in range(EPOCHS)]
    for number, path in enumerate(paths):
        pq.write_table(rows(number, EPOCH_ROWS), path, compression="none")
    return paths


def _uri(server: S3Server, place: str) -> str:
    return f"s3://{server.bucket}/{place}"


def _copy(server: S3Server, name: str, place: str) -> None:
    """Copy a table on the server's disk, with the checksums that it has there."""
    template = server.directory / name
    if template.exists():
        shutil.copytree(template, server.directory / place)


def _run(contender: Contender, result: dict, proxy: FaultyProxy, order: tuple[str, dict]) -> None:
    proxy.requests.clear()
    proxy.bytes = 0
    method, arguments = order
    if ask(contender, result, method, **arguments) is None:
        return
    kinds = Counter(kind_of(*request) for request in proxy.requests)
    result["runs"][-1] |= {"requests": dict(kinds), "moved_bytes": proxy.bytes}
    print(method, contender.name, result["runs"][-1], flush=True)


def _check(
    operation: str, contender: Contender, uri: str, server: S3Server, direct: dict[str, str]
) -> None:
    """Compare the rows after an operation, read by delta-rs, with those that there must be."""
    expected = {
        "compact small": SMALL_FILES * SMALL_ROWS,
        "compact large": LARGE_FILES * LARGE_ROWS,
        "cluster": CLUSTER_FILES * CLUSTER_ROWS,
        "sink": EPOCHS * EPOCH_ROWS,
        "vacuum": 10,
    }[operation]
    options = {**direct, "AWS_ENDPOINT_URL": server.endpoint}
    found = DeltaTable(uri, storage_options=options).to_pyarrow_table(columns=["id"])["id"]
    if len(found) != expected or len(found.unique()) != expected:
        raise SystemExit(f"{contender.name} left {len(found):,} rows after {operation}")


def requests_of(result: dict) -> float | None:
    """Return the median number of requests of a run."""
    runs = result.get("runs")
    if not runs:
        return None
    return float(np.median([sum(run["requests"].values()) for run in runs]))


def moved_mb(result: dict) -> float:
    return float(np.median([run["moved_bytes"] for run in result["runs"]])) / 1e6


def table(found: dict) -> str:
    """Return the results as Markdown."""
    subject = f"{found['latency_ms']:g} ms added to every request"
    parts = [in_words(found, subject)]
    for operation, by_name in found["results"].items():
        lines = [_row(name, result) for name, result in by_name.items()]
        parts.append("\n".join([f"**{OPERATIONS[operation]}**", "", *head(TITLES), *lines]))
    return "\n\n".join(parts)


def _row(name: str, result: dict) -> str:
    total = requests_of(result)
    if total is None:
        return row(LABELS[name], result.get("error", "cannot"), width=len(TITLES))
    by_kind = [
        f"{np.median([run['requests'].get(kind, 0) for run in result['runs']]):g}" for kind in KINDS
    ]
    cpu, moved = f"{median(result, 'cpu_seconds'):.2f}", f"{moved_mb(result):,.1f}"
    return row(LABELS[name], f"{total:g}", *by_kind, moved, cpu, width=len(TITLES))


SECTION = Section(name="s3", table=table)


def missed_goals(results: dict[str, dict]) -> list[str]:
    """Return which goals are missed: fewer requests than both peers, few bytes moved."""
    missed = []
    for operation, by_name in results.items():
        ours = requests_of(by_name["lakehand-local"])
        for peer in ("delta-rs", "delta-spark-s3a"):
            theirs = requests_of(by_name.get(peer, {}))
            if ours is None or (theirs is not None and ours >= theirs):
                missed.append(f"{operation}: {ours} requests, {peer} {theirs}")
    moved = moved_mb(results["compact large"]["lakehand-local"])
    if moved >= GOAL_MOVED * LARGE_FILES * LARGE_ROWS * ROW_BYTES / 1e6:
        missed.append(f"compact large moved {moved:,.1f} MB")
    return missed


if __name__ == "__main__":
    main()
