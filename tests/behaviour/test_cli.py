"""The command, on real tables."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from deltalake import DeltaTable

from lakehand.cli.main import run
from support.small_tables import fingerprint, make_table, read_sorted

INSPECT_FIELDS = {
    "table", "format", "version", "file_count", "total_bytes", "row_count", "deleted_row_count",
    "small_file_count", "partition_count", "checkpoint_version", "commits_since_checkpoint",
    "health",
}  # fmt: skip


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path / "events")


@pytest.fixture
def lakehand(capsys):
    """Run the command in this process: exit code, stdout and stderr."""

    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def document(result):
    """Return the JSON document of a command that must have succeeded."""
    code, out, _ = result
    assert code == 0, out
    return json.loads(out)


def test_inspect_json_has_the_promised_fields_and_tells_the_truth(lakehand, table):
    report = document(lakehand("inspect", table, "--json"))
    judge = DeltaTable(str(table))
    assert report.keys() >= INSPECT_FIELDS
    assert (report["format"], report["version"]) == ("delta", judge.version())
    assert report["file_count"] == len(judge.file_uris()) == 12
    assert report["row_count"] == judge.to_pyarrow_table().num_rows == 60
    assert (report["partition_count"], report["small_file_count"]) == (2, 12)
    assert (report["checkpoint_version"], report["commits_since_checkpoint"]) == (None, 6)


def test_inspect_explains_the_score_in_words(lakehand, table):
    health = document(lakehand("inspect", table, "--json"))["health"]
    assert health["score"] == 100 - sum(reason["points"] for reason in health["reasons"])
    assert health["reasons"][0]["code"] == "small_files"
    assert "compaction would save 10" in health["reasons"][0]["message"]


def test_inspect_shows_a_screen_with_numbers_reasons_and_a_histogram(lakehand, table):
    code, out, err = lakehand("inspect", table)
    assert (code, err) == (0, "")
    for words in ("health", "compaction would save 10", "partitions", "by region", "below 2 MiB"):
        assert words in out
    assert "█" in out


def test_inspect_lists_every_file_in_json(lakehand, table):
    report = document(lakehand("inspect", table, "--files", "--json"))
    listed = {str(table / file["path"]) for file in report["files"]}
    assert listed == {uri.removeprefix("file://") for uri in DeltaTable(str(table)).file_uris()}
    assert sum(file["rows"] for file in report["files"]) == report["row_count"]
    assert {file["partition"]["region"] for file in report["files"]} == {"eu", "us"}


def test_inspect_lists_every_file_on_the_screen_with_its_whole_path(lakehand, table):
    _, out, _ = lakehand("inspect", table, "--files")
    for file in table.rglob("*.parquet"):
        assert file.relative_to(table).as_posix() in out


def test_inspect_looks_at_an_earlier_version(lakehand, table):
    report = document(lakehand("inspect", table, "--version", 2, "--json"))
    assert (report["version"], report["file_count"]) == (2, 6)


def test_inspect_looks_at_the_version_of_a_time(lakehand, table):
    commits = document(lakehand("history", table, "--json"))["commits"]
    third = next(commit for commit in commits if commit["version"] == 2)
    report = document(lakehand("inspect", table, "--timestamp", third["at"], "--json"))
    assert report["version"] >= 2
    assert report["at"] <= third["at"]


def test_the_target_size_of_the_call_decides_what_is_small(lakehand, table):
    report = document(lakehand("inspect", table, "--target-file-size", "1kb", "--json"))
    assert (report["target_file_bytes"], report["small_file_count"]) == (1000, 0)


def test_history_lists_commits_newest_first(lakehand, table):
    history = document(lakehand("history", table, "--json"))
    assert [commit["version"] for commit in history["commits"]] == [5, 4, 3, 2, 1, 0]
    assert {commit["operation"] for commit in history["commits"]} == {"WRITE"}
    limited = document(lakehand("history", table, "--limit", 2, "--json"))
    assert [commit["version"] for commit in limited["commits"]] == [5, 4]


def test_history_says_what_each_commit_did(lakehand, table):
    code, out, _ = lakehand("history", table)
    assert code == 0
    assert "2 files added, 10 rows written" in out
    assert "delta-rs" in out


def test_settings_shows_values_and_where_they_come_from(lakehand, monkeypatch):
    monkeypatch.setenv("LAKEHAND_TARGET_FILE_BYTES", "32MiB")
    found = document(lakehand("settings", "--json"))["settings"]["target_file_bytes"]
    assert found == {"value": 32 * 2**20, "source": "environment LAKEHAND_TARGET_FILE_BYTES"}
    _, out, _ = lakehand("settings")
    assert "32 MiB" in out


def test_reading_commands_write_nothing(lakehand, table):
    before = fingerprint(table)
    lakehand("inspect", table, "--files")
    lakehand("history", table)
    assert fingerprint(table) == before


def test_a_checkpoint_is_written_and_used(lakehand, table):
    written = document(lakehand("checkpoint", table, "--json"))
    assert (written["operation"], written["outcome"]) == ("checkpoint", "committed")
    assert written["version"] == 5
    report = document(lakehand("inspect", table, "--json"))
    assert (report["checkpoint_version"], report["commits_since_checkpoint"]) == (5, 0)


def test_another_engine_reads_the_checkpoint_without_the_commits_before_it(lakehand, table):
    before = read_sorted(table)
    lakehand("checkpoint", table)
    for version in range(5):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    assert read_sorted(table).equals(before)


def test_a_second_checkpoint_of_the_same_version_is_nothing_to_do(lakehand, table):
    lakehand("checkpoint", table)
    before = fingerprint(table)
    code, out, _ = lakehand("checkpoint", table)
    assert (code, fingerprint(table)) == (0, before)
    assert "nothing to do" in out


OPERATION_FIELDS = {
    "operation", "outcome", "version", "files_before", "files_after", "files_removed",
    "files_added", "rows_read", "rows_written", "bytes_before", "bytes_after", "duration_ms",
    "plan_ms", "read_ms", "write_ms", "prove_ms", "commit_ms", "methods", "groups", "proof",
    "retries", "files_skipped_large_enough", "average_file_bytes", "rows_per_second",
    "bytes_per_second", "strategy", "bin_packing_efficiency", "partitions_compacted", "skip_reason",
    "remaining", "forecast", "ran_on",
}  # fmt: skip


def test_compact_json_has_the_promised_fields_and_the_rows_stay(lakehand, table):
    before = read_sorted(table)
    report = document(lakehand("compact", table, "--json"))
    assert report.keys() >= OPERATION_FIELDS
    assert report["ran_on"] == "local"
    assert (report["outcome"], report["version"]) == ("committed", 6)
    assert (report["files_before"], report["files_after"]) == (12, 2)
    assert report["rows_read"] == report["rows_written"] == report["proof"]["rows"] == 60
    assert read_sorted(table).equals(before)


def test_a_compacted_table_is_healthy_and_has_nothing_to_do(lakehand, table):
    lakehand("compact", table, "--engine", "local")
    report = document(lakehand("inspect", table, "--json"))
    assert (report["file_count"], report["health"]["score"]) == (2, 100)
    code, out, _ = lakehand("compact", table, "--engine", "local")
    assert code == 0
    assert "compact: nothing to do" in out


def test_compact_says_what_it_did_and_history_shows_the_proof(lakehand, table):
    code, out, _ = lakehand("compact", table, "--engine", "local")
    assert code == 0
    assert "compact: version 6 committed" in out
    assert "files   12 → 2" in out
    assert "rows    60 proved equal, read back from storage" in out
    entry = document(lakehand("history", table, "--limit", 1, "--json"))["commits"][0]
    assert entry["summary"].startswith("2 files added, 12 files removed")
    assert entry["proof"]


def test_a_dry_run_writes_nothing(lakehand, table):
    before = fingerprint(table)
    report = document(lakehand("compact", table, "--dry-run", "--json"))
    assert report["outcome"] == "dry_run"
    assert report["groups"] == {"planned": 2, "committed": 0, "dropped": 0, "adopted": 0}
    assert report["forecast"]["files_after"] == 2
    _, out, _ = lakehand("compact", table, "--dry-run")
    assert "2 groups of files would be rewritten; nothing was written" in out
    assert fingerprint(table) == before


def test_too_few_files_are_left_alone_with_a_reason(lakehand, table):
    report = document(lakehand("compact", table, "--min-files", 100, "--json"))
    assert report["outcome"] == "nothing_to_do"
    assert sum(report["files_left"].values()) == 12


def test_log_records_go_to_stderr_as_json_when_asked(lakehand, table):
    code, out, err = lakehand(
        "--log-format", "json", "inspect", table, "--json", "--log-level", "debug"
    )
    assert code == 0
    assert json.loads(out)["file_count"] == 12
    assert all("message" in json.loads(line) for line in err.splitlines())


def test_inspect_starts_no_jvm_and_loads_only_what_it_needs(table):
    program = (
        "import sys; from lakehand.cli.main import run\n"
        "code = run(['inspect', sys.argv[1], '--json'])\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)\n"
        "sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, table], capture_output=True, text=True, check=True
    )
    loaded = set(result.stderr.split())
    assert json.loads(result.stdout)["file_count"] == 12
    assert loaded & {"pyspark", "py4j", "lance", "deltalake", "pandas", "sqlglot"} == set()


def test_the_command_is_installed(table):
    command = [sys.executable, "-m", "lakehand", "inspect", table, "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)["version"] == 5


NO_SPARK = """
import sys
from lakehand.cli.main import run
for command, *options in (
    ["compact"],
    ["verify", "--deep", "--all"],
    ["statistics", "--full"],
    ["cluster", "--by", "id", "--full"],
    ["deduplicate", "--key", "id"],
    ["vacuum", "--engine", "spark"],
):
    assert run([command, sys.argv[1], *options, "--json"]) == 0, command
assert "pyspark" not in sys.modules
"""


def test_no_spark_is_started_for_a_small_table(table):
    command = [sys.executable, "-c", NO_SPARK, str(table)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
