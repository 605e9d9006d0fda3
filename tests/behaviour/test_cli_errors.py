"""Bad input: each a typed error that says what, where and what to do. Nothing is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakehand.cli.main import run
from lakehand.errors import EXIT_USAGE
from support.small_tables import commit_by_hand, fingerprint, make_table

SECRET = "a-secret-that-no-message-may-show"


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path / "events", commits=3)


@pytest.fixture
def failing(capsys):
    """Run a command that fails: its exit code, and its error as words and as a document."""

    def call(*arguments):
        code = run([*(str(argument) for argument in arguments), "--json"])
        captured = capsys.readouterr()
        assert SECRET not in captured.out + captured.err
        assert "Traceback" not in captured.err
        return code, json.loads(captured.out)["error"], captured.err

    return call


def assert_explained(error, words, *, code, where):
    """Check that an error has its code, names the place, and says what to do, on both channels."""
    assert error["code"] == code
    assert where in error["message"]
    assert error["hint"]
    assert error["message"] in words
    assert error["hint"] in words


def test_a_place_where_nothing_is(failing, tmp_path):
    code, error, words = failing("inspect", tmp_path / "nothing")
    assert code == 1
    assert_explained(error, words, code="NOT_A_TABLE", where="nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        ("part-0.parquet", "Parquet files but no log"),
        ("notes.txt", "it holds notes.txt"),
        ("metadata/v1.metadata.json", "a table of Iceberg"),
        (".hoodie/hoodie.properties", "a table of Hudi"),
    ],
)
def test_a_place_that_holds_something_else(failing, tmp_path, entry, hint):
    (tmp_path / entry).parent.mkdir(exist_ok=True)
    (tmp_path / entry).write_text("x")
    before = fingerprint(tmp_path)
    code, error, words = failing("inspect", tmp_path)
    assert code == 1
    assert_explained(error, words, code="NOT_A_TABLE", where=tmp_path.name)
    assert hint in error["hint"]
    assert fingerprint(tmp_path) == before


def test_an_empty_log(failing, tmp_path):
    (tmp_path / "_delta_log").mkdir()
    code, error, words = failing("inspect", tmp_path)
    assert code == 1
    assert_explained(error, words, code=error["code"], where=tmp_path.name)
    assert error["code"] in {"NOT_A_TABLE", "CORRUPT_LOG"}
    assert list((tmp_path / "_delta_log").iterdir()) == []


def test_a_gap_in_the_log(failing, table):
    (table / "_delta_log" / f"{1:020}.json").unlink()
    code, error, words = failing("inspect", table)
    assert code == 1
    assert_explained(error, words, code="CORRUPT_LOG", where=table.name)


def test_a_commit_that_is_no_json(failing, table):
    (table / "_delta_log" / f"{2:020}.json").write_text('{"add": {"path"')
    before = fingerprint(table)
    code, error, words = failing("inspect", table)
    assert code == 1
    assert_explained(error, words, code="CORRUPT_LOG", where=f"{2:020}.json")
    assert fingerprint(table) == before


def test_a_truncated_checkpoint_without_the_commits_before_it(failing, table):
    DeltaTable(str(table)).create_checkpoint()
    [checkpoint] = (table / "_delta_log").glob("*.checkpoint*.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-20])
    for version in range(2):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    before = fingerprint(table)
    code, error, words = failing("inspect", table)
    assert code == 1
    assert_explained(error, words, code=error["code"], where=table.name)
    assert error["code"] in {"CORRUPT_FILE", "CORRUPT_LOG"}
    assert fingerprint(table) == before


FEATURES_ON = {"minReaderVersion": 3, "minWriterVersion": 7}


def with_features(*features):
    return {"protocol": {**FEATURES_ON, "readerFeatures": features, "writerFeatures": features}}


def test_an_unknown_feature_is_refused_by_name(failing, table):
    commit_by_hand(table, with_features("timeReversal"))
    before = fingerprint(table)
    for verb in ("inspect", "checkpoint", "compact"):
        code, error, words = failing(verb, table)
        assert code == 1
        assert_explained(error, words, code="REFUSED", where="timeReversal")
        assert error["feature"] == "timeReversal"
    assert fingerprint(table) == before


def adds_of_version_0(table):
    """Return the two files of the first commit, one for each region."""
    lines = (table / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    return [json.loads(line)["add"] for line in lines if '"add"' in line]


def give_corrupt_deletion_vector(table, adds):
    """Point files of the table to a deletion vector whose bytes are noise."""
    name = f"deletion_vector_{uuid.UUID(int=7)}.bin"
    (table / name).write_bytes(b"\x01" + bytes(range(60)))
    vector = {"storageType": "p", "pathOrInlineDv": f"file://{table}/{name}"}
    vector |= {"offset": 1, "sizeInBytes": 36, "cardinality": 1}
    commit_by_hand(
        table,
        with_features("deletionVectors"),
        *(
            {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}}
            for add in adds
        ),
        *({"add": {**add, "deletionVector": vector}} for add in adds),
    )


COMPACT = ("--engine", "local", "--min-files", 2)


def test_a_corrupt_deletion_vector_stops_what_has_to_read_it(failing, table):
    give_corrupt_deletion_vector(table, adds_of_version_0(table))
    before = fingerprint(table)
    code, error, words = failing("compact", table, *COMPACT)
    assert code == 1
    assert_explained(error, words, code="CORRUPT_FILE", where="deletion_vector")
    assert fingerprint(table) == before


def test_a_corrupt_deletion_vector_does_not_stop_other_partitions(capsys, table):
    give_corrupt_deletion_vector(table, adds_of_version_0(table)[:1])
    code = run(["compact", str(table), *map(str, COMPACT), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 1
    assert [error["code"] for error in report["errors"]] == ["CORRUPT_FILE"]
    assert report["groups"] == {"planned": 2, "committed": 1, "dropped": 0, "adopted": 0}


def test_a_failed_group_is_named_on_the_screen(capsys, table):
    give_corrupt_deletion_vector(table, adds_of_version_0(table)[:1])
    assert run(["compact", str(table), *map(str, COMPACT)]) == 1
    assert "failed: " in capsys.readouterr().out


def test_a_version_that_is_not_there(failing, table):
    code, error, words = failing("inspect", table, "--version", 99)
    assert code == 1
    assert_explained(error, words, code="VERSION_NOT_FOUND", where="99")
    assert error["latest"] == 2


def test_a_wrong_endpoint(failing):
    code, error, words = failing(
        "inspect", "s3://lake/events",
        "--storage-option", "endpoint=http://127.0.0.1:9",
        "--storage-option", "allow_http=true",
        "--storage-option", "region=us-east-1",
        "--storage-option", "access_key_id=me",
        "--storage-option", f"secret_access_key={SECRET}",
    )  # fmt: skip
    assert code == 1
    assert_explained(error, words, code="STORE_UNREACHABLE", where="s3://lake/events")
    assert error["retryable"] is True


@pytest.mark.server
def test_no_permission(failing, s3_server):
    options = {**s3_server.options, "secret_access_key": f"not-{SECRET}"}
    flags = [
        flag for key, value in options.items() for flag in ("--storage-option", f"{key}={value}")
    ]
    code, error, words = failing("inspect", s3_server.new_uri(), *flags)
    assert code == 1
    assert_explained(error, words, code="ACCESS_DENIED", where="s3://")


def test_a_version_and_a_time_at_once_is_bad_usage(failing, table):
    code, error, _ = failing("inspect", table, "--version", 1, "--timestamp", "2026-01-01")
    assert (code, error["code"]) == (2, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect"], "Missing argument 'TABLE'"),
        (["inspect", "t", "--colour"], "No such option"),
        (["shuffle", "t"], "No such command 'shuffle'"),
        (["inspect", "t", "--version", "-1"], "Invalid value for '--version'"),
        (["inspect", "t", "--storage-option", SECRET], "write it as KEY=VALUE"),
    ],
)
def test_bad_usage_is_exit_code_2(failing, arguments, words):
    code, error, shown = failing(*arguments)
    assert (code, error["code"]) == (2, "USAGE_ERROR")
    assert words in error["message"]
    assert words in shown


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--timestamp", "yesterday", "is not a timestamp"),
        ("--target-file-size", "12 parsecs", "is not a size"),
        ("--target-file-size", "0", "must be at least 1"),
    ],
)
def test_a_bad_value_is_exit_code_2(failing, table, option, value, words):
    code, error, _ = failing("inspect", table, option, value)
    assert (code, error["code"]) == (2, "VALIDATION_ERROR")
    assert words in error["message"]


def test_a_bad_setting_in_the_environment_is_exit_code_2(failing, table, monkeypatch):
    monkeypatch.setenv("LAKEHAND_MAX_RETRIES", "many")
    code, error, _ = failing("inspect", table)
    assert (code, error["field"]) == (2, "max_retries")


def test_a_scheme_that_nobody_knows_is_exit_code_2(failing):
    code, error, _ = failing("inspect", "ftp://lake/events")
    assert (code, error["code"]) == (2, "VALIDATION_ERROR")


def test_no_arguments_show_the_help(capsys):
    assert run([]) == 2
    assert "inspect" in capsys.readouterr().err


def test_the_error_goes_to_stderr_only_without_json(capsys, tmp_path):
    assert run(["inspect", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: there is no table at ")
    assert "\nhint: " in captured.err


def test_a_path_that_is_nearly_that_of_a_directory_is_met_with_its_name(tmp_path, capsys):
    (tmp_path / "orders").mkdir()
    assert run(["inspect", str(tmp_path / "ordrs")]) == 1
    assert f"did you mean {tmp_path / 'orders'}?" in capsys.readouterr().err.replace("\n", "")


class _Unlucky:
    """Raises what it was made with, wherever a table is opened."""

    def __init__(self, error):
        self.error = error

    def __call__(self, *_arguments, **_options):
        raise self.error


def test_a_fault_of_lakehand_is_told_from_a_fault_of_the_input(failing, monkeypatch):
    monkeypatch.setattr("lakehand.table.open_table", _Unlucky(RuntimeError("oh")))
    code, error, _ = failing("inspect", "t")
    assert (code, error["code"], error["message"]) == (1, "INTERNAL", "RuntimeError: oh")
    assert "report it" in error["hint"]


def test_an_interrupted_command_says_so(failing, monkeypatch):
    monkeypatch.setattr("lakehand.table.open_table", _Unlucky(KeyboardInterrupt()))
    code, error, _ = failing("inspect", "t")
    assert (code, error["code"]) == (130, "INTERRUPTED")
    assert "the table is undamaged" in error["hint"]


def test_a_reader_that_goes_away_is_no_fault(table):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "lakehand", "inspect", str(table), "--files"]
    with os.fdopen(writing, "w") as stdout:
        result = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False)
    assert (result.returncode, result.stderr) == (1, b"")


@pytest.mark.parametrize(
    "words",
    [
        ["vacuum", "--retention", "168"],
        ["vacuum", "--grace", "24"],
        ["purge", "--retention", "168"],
        ["maintain", "--quiet-period", "5"],
        ["health", "--max-checkpoint-age", "7"],
        ["pin", "audit", "--expires", "30"],
    ],
)
def test_a_number_without_a_unit_is_refused_by_every_command(table, words, capsys):
    verb, *options = words
    assert run([verb, str(table), *options]) == EXIT_USAGE
    assert f"write {words[-1]}h for hours" in capsys.readouterr().err


def test_what_the_hint_on_a_short_retention_recommends_is_accepted(table, capsys):
    vacuum = ["vacuum", str(table), "--grace", "0", "--retention"]
    assert run([*vacuum, "0s", "--allow-short-retention"]) == EXIT_USAGE
    assert "at least 1 h" in capsys.readouterr().err
    assert run([*vacuum, "1h"]) == EXIT_USAGE
    assert "--allow-short-retention" in capsys.readouterr().err
    assert run([*vacuum, "1h", "--allow-short-retention"]) == 0


def test_a_reader_that_stops_early_sees_no_complaints(tmp_path):
    import lakehand

    properties = {"delta.enableChangeDataFeed": "true"}
    made = lakehand.create_table(
        tmp_path / "t", pa.schema({"id": pa.int64()}), properties=properties
    )
    for number in range(4):
        made.append(pa.table({"id": [number]}))
    command = [sys.executable, "-m", "lakehand", "changes", tmp_path / "t", "--from-version", "0"]
    with subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
