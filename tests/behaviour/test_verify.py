"""`verify` reads both sides of a rewrite again: equal, different, or nobody can say any more."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehand import create_table, open_table
from lakehand.cli.main import run
from lakehand.errors import AccessDeniedError, VersionNotFoundError
from lakehand.formats.delta.table import DeltaFormat
from lakehand.prove.digest import ALGORITHM, ENGINE
from lakehand.storage import open_store
from support.damage import state_sizes
from support.small_tables import commit_by_hand, fingerprint, make_table
from support.stripped_statistics import live_adds, newest_commit
from support.tasks_here import run_tasks_here


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    """Run tasks in this process; that they run elsewhere is shown once, below."""
    run_tasks_here(monkeypatch)


@pytest.fixture(scope="module")
def compacted(tmp_path_factory):
    """A table of two partitions that was compacted in version 4."""
    path = make_table(tmp_path_factory.mktemp("verify") / "table", commits=4)
    open_table(path, engine="local").compact()
    return path


@pytest.fixture
def path(compacted, tmp_path):
    return shutil.copytree(compacted, tmp_path / "table")


def check(path, **options):
    report = open_table(path, engine="local").verify(**options)
    [found] = report.proofs
    assert report.proof_outcome == found.outcome
    return found


def outputs(path):
    return [path / add["path"] for add in live_adds(path)]


def inputs(path):
    return sorted(set(path.rglob("*.parquet")) - set(outputs(path)))


def rewrite_file(file, change):
    pq.write_table(change(pq.ParquetFile(file).read()), file)
    state_sizes(next(folder for folder in file.parents if (folder / "_delta_log").is_dir()))


def with_proof(path, **changes):
    """Change what the newest commit says of its proof."""
    info, *actions = newest_commit(path)
    info["commitInfo"]["lakehand"]["proof"].update(changes)
    newest = max((path / "_delta_log").glob("*.json"))
    newest.write_text("".join(json.dumps(action) + "\n" for action in (info, *actions)))
    return path


def test_a_compaction_is_equal_to_what_it_replaced(path):
    before = fingerprint(path)
    found = check(path)

    assert (found.version, found.outcome, found.reason) == (4, "equal", None)
    assert found.inputs is not None
    assert found.outputs is not None
    assert (found.inputs.files, found.outputs.files, found.inputs.rows) == (8, 2, 40)
    assert found.inputs.digest == found.outputs.digest == found.proof["digest"]
    assert found.matches_record is True
    assert fingerprint(path) == before


def test_one_value_of_an_output_makes_the_difference(path):
    file = outputs(path)[0]
    amounts = pq.ParquetFile(file).read()["amount"].to_pylist()
    column = pa.array([*amounts[:-1], -1.0])
    rewrite_file(
        file, lambda rows: rows.set_column(rows.column_names.index("amount"), "amount", column)
    )

    found = check(path)

    assert (found.outcome, found.reason, found.matches_record) == ("differs", "rows", False)


def test_a_lost_row_makes_the_difference(path):
    rewrite_file(outputs(path)[0], lambda rows: rows.slice(1))
    found = check(path)

    assert (found.outcome, found.reason) == ("differs", "rows")
    assert found.message.startswith("40 rows")


def test_an_output_that_is_no_parquet_any_more_differs(path):
    outputs(path)[0].write_bytes(b"PAR1 nothing PAR1")
    found = check(path)

    assert (found.outcome, found.reason) == ("differs", "unreadable_output")


def test_without_inputs_nothing_can_be_compared(path):
    inputs(path)[0].unlink()
    found = check(path)

    assert (found.outcome, found.reason) == ("cannot_compare", "inputs_gone")
    assert found.inputs is None
    # What is left still is what was proved then.
    assert found.matches_record is True


def test_without_inputs_the_proof_still_tells_a_changed_output(path):
    for file in inputs(path):
        file.unlink()
    rewrite_file(outputs(path)[0], lambda rows: pa.concat_tables([rows.slice(1), rows.slice(1, 1)]))
    found = check(path)

    assert (found.outcome, found.reason) == ("differs", "record")


def test_a_broken_input_is_no_difference(path):
    inputs(path)[0].write_bytes(b"PAR1 nothing PAR1")
    found = check(path)

    assert (found.outcome, found.reason) == ("cannot_compare", "unreadable_input")


def test_a_vacuumed_deletion_vector_is_no_difference(tmp_path):
    place = tmp_path / "table"
    schema = pa.schema([("id", pa.int64())])
    properties = {"delta.enableDeletionVectors": "true"}
    DeltaFormat().create(open_store(place), schema, properties=properties)
    table = open_table(place, engine="local")
    table.append(pa.table({"id": range(1_000)}, schema=schema))
    first, second = (table.delete(where=f"id = {row}").version for row in (3, 7))
    [old, new] = sorted(place.rglob("*.bin"), key=lambda file: file.stat().st_mtime_ns)
    old.unlink()

    report = table.verify(every=True)
    assert report.outcome == "sound"
    assert {check.version: (check.outcome, check.reason) for check in report.proofs} == {
        first: ("cannot_compare", "outputs_gone"),
        second: ("cannot_compare", "inputs_gone"),
    }
    new.write_bytes(b"no vector")
    assert check(place).reason == "unreadable_output"


def test_outputs_that_are_gone_cannot_be_compared(path):
    outputs(path)[0].unlink()
    found = check(path)

    assert (found.outcome, found.reason) == ("cannot_compare", "outputs_gone")


@pytest.mark.parametrize(
    "changes",
    [{"algorithm": "lakehand-digest-0"}, {"engine": "duckdb-1.0.0"}, {"digest": None}],
)
def test_a_proof_of_another_engine_is_no_witness_and_no_hindrance(path, changes):
    found = check(with_proof(path, **changes))

    assert (found.outcome, found.matches_record) == ("equal", None)
    assert "another engine" in found.message


def test_a_proof_of_another_engine_says_nothing_once_inputs_are_gone(path):
    with_proof(path, algorithm="lakehand-digest-0", digest="0" * 32)
    inputs(path)[0].unlink()
    found = check(path)

    assert (found.outcome, found.reason, found.matches_record) == (
        "cannot_compare", "inputs_gone", None,
    )  # fmt: skip


@pytest.mark.parametrize("changes", [{"digest": "0" * 32}, {"rows": 39}])
def test_a_proof_of_other_rows_differs(path, changes):
    found = check(with_proof(path, **changes))
    assert (found.outcome, found.reason) == ("differs", "record")


def test_bytes_that_were_copied_are_compared_as_rows(path):
    found = check(with_proof(path, kind="ranges", digest="00000000", algorithm="r", engine="crc32"))
    assert (found.outcome, found.matches_record) == ("equal", None)


def test_a_commit_without_proof_cannot_be_compared(path):
    found = check(path, version=2)
    assert (found.outcome, found.reason) == ("cannot_compare", "no_proof")


def test_a_table_without_any_proof(tmp_path):
    report = open_table(make_table(tmp_path / "t", commits=1), engine="local").verify()
    assert (report.outcome, report.proof_outcome, report.proofs) == ("sound", "cannot_compare", ())


def test_a_version_that_is_not_there_is_an_error(path):
    with pytest.raises(VersionNotFoundError):
        check(path, version=17)


def test_what_is_not_about_the_files_is_raised(path, monkeypatch):
    def denied(*_args, **_options):
        raise AccessDeniedError("no")

    monkeypatch.setattr("lakehand.formats.delta.worker.DeltaWorker.digest_rows", denied)
    with pytest.raises(AccessDeniedError):
        check(path)


def test_all_commits_with_a_proof(path):
    make_table(path, commits=4)
    open_table(path, engine="local").compact()
    report = open_table(path, engine="local").verify(every=True)

    assert [found.version for found in report.proofs] == [9, 4]
    assert (report.outcome, report.proof_outcome) == ("sound", "equal")


def test_rows_of_a_table_that_changed_since(path):
    """Columns that came later, and deletions, do not change what a commit replaced."""
    [metadata] = [
        line["metaData"]
        for line in map(
            json.loads, (path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
        )
        if "metaData" in line
    ]
    schema = json.loads(metadata["schemaString"])
    schema["fields"].append({"name": "new", "type": "string", "nullable": True, "metadata": {}})
    commit_by_hand(path, {"metaData": metadata | {"schemaString": json.dumps(schema)}})
    removed = live_adds(path)[0]["path"]
    commit_by_hand(path, {"remove": {"path": removed, "dataChange": True}})

    assert check(path).outcome == "equal"


def test_statistics_that_were_computed_anew_change_nothing(path):
    open_table(path, engine="local").statistics(full=True)
    assert check(path).outcome == "equal"


@pytest.mark.parametrize(("damage", "code"), [(None, 0), ("output", 5), ("input", 1)])
def test_the_command_says_it_by_its_exit_code(path, damage, code, capsys):
    if damage == "output":
        rewrite_file(outputs(path)[0], lambda rows: rows.slice(1))
    if damage == "input":
        inputs(path)[0].unlink()

    assert run(["verify", str(path), "--all", "--engine", "local", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["operation"] == "verify"
    assert (document["algorithm"], document["engine"]) == (ALGORITHM, ENGINE)
    assert document["proof_outcome"] == {0: "equal", 5: "differs", 1: "cannot_compare"}[code]
    assert document["outcome"] == ("damaged" if code == 5 else "sound")


def test_proofs_that_nobody_asked_for_may_be_impossible_to_compare(path):
    inputs(path)[0].unlink()
    assert run(["verify", str(path), "--engine", "local"]) == 0


def test_the_screen_names_version_and_verdict(path, capsys):
    assert run(["verify", str(path), "--engine", "local"]) == 0
    screen = capsys.readouterr().out
    assert "rows are equal" in screen
    assert "version 4" in screen
    assert "the proof in the commit matches" in screen


def test_tasks_run_in_processes_of_their_own_and_tell_their_progress(path, monkeypatch):
    monkeypatch.undo()
    seen = []
    assert check(path, on_progress=seen.append).outcome == "equal"
    assert [(event.phase, event.done, event.total) for event in seen][-1] == ("verify", 10, 10)


def test_the_commands_of_the_guide_work(path, monkeypatch, capsys):
    monkeypatch.setenv("LAKEHAND_ENGINE", "local")
    guide = Path(__file__).parents[2] / "docs" / "guides" / "verify.md"
    commands = re.findall(r"^\$ lakehand (.*)$", guide.read_text(), re.MULTILINE)

    assert len(commands) > 1
    for command in commands:
        assert run(command.replace("s3://lake/events", str(path)).split()) == 0, capsys.readouterr()


def test_files_with_statistics_are_held_against_their_footers(tmp_path: Path) -> None:
    """The footers of a sound table contradict nothing that the table says of its files."""
    table = create_table(tmp_path / "t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2, 3]}))

    assert table.verify().outcome == "sound"
