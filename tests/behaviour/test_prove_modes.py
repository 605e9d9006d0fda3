"""`prove` says what evidence is asked for: another decoder sees more, counts see less."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand.errors import ProofError
from lakehand.formats.delta.read import scanner
from lakehand.formats.delta.worker import DeltaWorker
from lakehand.formats.worker import TaskLimits, WriteSpec
from lakehand.model.work import DataFile, Group, GroupResult
from lakehand.rewrite.task import RewriteTask
from lakehand.runs import Run, list_runs
from lakehand.storage import open_store
from support.reading import column, struct, worker_of

ROWS = pa.table({"id": pa.array(range(40), pa.int64()), "name": [f"n{i}" for i in range(40)]})
COLUMNS = (column("id", "long"), column("name", "string"))


class Tampering:
    """A worker that may write other rows than it was given."""

    def __init__(self, worker, *, write=None):
        self._worker = worker
        self._write = write

    def __getattr__(self, name):
        return getattr(self._worker, name)

    def write(self, batches, spec, **options):
        rows = pa.Table.from_batches(batches)
        rows = self._write(rows) if self._write else rows
        return self._worker.write(rows.to_batches(), spec, **options)


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path)


def put(store, name, rows=ROWS):
    with store.open_writer(name) as sink:
        pq.write_table(rows, sink)
    size = store.head(name).bytes
    add = {"path": name, "partitionValues": {}, "size": size}
    return DataFile(path=name, bytes=size, rows=rows.num_rows, native={"add": add})


def rewrite(store, files, *, prove, columns=COLUMNS, **tampering) -> GroupResult:
    worker = Tampering(worker_of(store, *columns), **tampering)
    group = Group(id=0, inputs=tuple(files))
    run = Run.start(store, {"groups": [group.to_json()]})
    task = RewriteTask(
        worker=worker,
        run=run,
        spec=WriteSpec(target_file_bytes=2**20),
        limits=TaskLimits(),
        prove=prove,
    )
    return GroupResult.from_json(task({"group": group.to_json()}))


def names_swapped(rows):
    names = rows["name"].combine_chunks().take(pa.array([1, 0, *range(2, 40)]))
    return rows.set_column(1, "name", names)


def one_dropped(rows):
    return rows.slice(1)


@pytest.mark.parametrize(
    ("prove", "kind", "decoders"),
    [
        ("digest", "digest", None),
        ("independent", "digest", "duckdb+arrow/arrow"),
        ("counts", "counts", None),
    ],
)
def test_a_proof_says_what_was_compared(store, prove, kind, decoders):
    result = rewrite(store, [put(store, "a.parquet")], prove=prove)

    assert result.proof is not None
    assert (result.proof.kind, result.proof.rows, result.proof.decoders) == (kind, 40, decoders)
    assert (result.proof.digest is None) == (prove == "counts")
    assert pq.read_table(store.local_path(result.outputs[0].path)).equals(ROWS)


def test_independent_reads_inputs_again_and_outputs_with_arrow_alone(store, monkeypatch):
    read_by_arrow = []

    def watched(request, files):
        read_by_arrow.extend(file.path for file in files)
        return real(request, files)

    real = scanner.read_rows
    monkeypatch.setattr(scanner, "read_rows", watched)
    result = rewrite(store, [put(store, "a.parquet")], prove="independent")

    assert read_by_arrow == ["a.parquet", result.outputs[0].path]


def test_what_only_arrow_reads_is_read_back_by_duckdb(store, monkeypatch):
    columns = (column("s", struct(column("x", "integer"), column("y", "string"))),)
    kind = pa.struct({"y": pa.string(), "x": pa.int32()})  # members in another order
    rows = pa.table({"s": pa.array([{"x": 1, "y": "a"}, None, {"x": 2, "y": None}], kind)})
    result = rewrite(store, [put(store, "a.parquet", rows)], prove="independent", columns=columns)

    assert result.proof is not None
    assert (result.proof.rows, result.proof.decoders) == (3, "arrow/duckdb")
    written = pq.read_table(store.local_path(result.outputs[0].path))["s"].to_pylist()
    assert written == [{"x": 1, "y": "a"}, None, {"x": 2, "y": None}]


def test_rows_that_one_decoder_alone_reads_are_not_proved_independently(store, monkeypatch):
    monkeypatch.setattr(scanner, "sql_rows", lambda *_: None)
    with pytest.raises(ProofError, match="only one decoder can read"):
        rewrite(store, [put(store, "a.parquet")], prove="independent")

    [run] = list_runs(store)
    assert Run(store=store, id=run).results() == []


def test_rows_that_are_misread_are_proved_by_a_second_decoder_only(store, monkeypatch):
    real = scanner.sql_rows

    def misread(connection, request, files, paths):
        rows = real(connection, request, files, paths)
        if files[0].path != "a.parquet":
            return rows
        return replace(rows, text=f"SELECT c0, upper(c1) FROM ({rows.text}) AS misread(c0, c1)")

    monkeypatch.setattr(scanner, "sql_rows", misread)
    assert rewrite(store, [put(store, "a.parquet")], prove="digest").proof is not None
    with pytest.raises(ProofError, match="one decoder reads 40 rows"):
        rewrite(store, [put(store, "a.parquet")], prove="independent")


@pytest.mark.parametrize("prove", ["digest", "independent"])
@pytest.mark.parametrize("change", [names_swapped, one_dropped])
def test_changed_rows_are_caught_by_any_decoder(store, prove, change):
    with pytest.raises(ProofError, match="nothing was changed"):
        rewrite(store, [put(store, "a.parquet")], prove=prove, write=change)


def test_counts_see_a_lost_row_and_no_changed_value(store):
    with pytest.raises(ProofError, match="40 rows were read, but 39 were written"):
        rewrite(store, [put(store, "a.parquet")], prove="counts", write=one_dropped)

    result = rewrite(store, [put(store, "a.parquet")], prove="counts", write=names_swapped)
    assert result.proof is not None
    assert (result.proof.kind, result.proof.digest) == ("counts", None)


def test_counts_are_taken_from_what_storage_holds(store, monkeypatch):
    real = DeltaWorker.write

    def lose_an_output(worker, batches, spec, **options):
        staged = real(worker, batches, spec, **options)
        put(store, staged[0].path, ROWS.slice(3))
        return (replace(staged[0], tail=None),)

    monkeypatch.setattr(DeltaWorker, "write", lose_an_output)
    with pytest.raises(ProofError, match="40 rows were read, but 37 were written"):
        rewrite(store, [put(store, "a.parquet")], prove="counts")
