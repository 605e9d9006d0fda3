"""Files that no version needs are listed with size and age; nothing else is."""

from __future__ import annotations

import json

from lakehand import open_table
from lakehand.cli.main import run
from lakehand.retention.candidates import list_orphans
from lakehand.settings import Settings
from lakehand.storage import open_store
from support.aged_tables import make_aged_table
from support.clocked_tables import ClockedTable
from support.small_tables import make_table


def orphans(lake: ClockedTable) -> dict[str, tuple[int, int, bool]]:
    found = list_orphans(lake.table, settings=Settings(), clock=lake.clock).to_pylist()
    return {row["path"]: (row["bytes"], row["age_seconds"], row["is_due"]) for row in found}


def test_strays_of_any_age_are_listed_and_live_files_are_not():
    lake = ClockedTable("live.parquet")
    lake.put("old stray.parquet")
    lake.wait(days=8)
    lake.put("young.parquet", "_hidden/x.parquet", "_delta_log/x.tmp")
    lake.wait(hours=1)
    assert orphans(lake) == {
        "old stray.parquet": (4, 8 * 86_400 + 3_600, True),
        "young.parquet": (4, 3_600, False),
    }


def test_a_removed_file_is_an_orphan_once_its_last_version_is_past_the_retention():
    lake = ClockedTable("a.parquet", "b.parquet")
    lake.wait(days=1)
    lake.remove("a.parquet")
    lake.wait(days=6)
    assert orphans(lake) == {}
    lake.wait(days=2)
    assert [*orphans(lake)] == ["a.parquet"]


def test_what_is_due_is_what_vacuum_would_take():
    lake = ClockedTable("live.parquet")
    lake.put("stray.parquet")
    lake.wait(days=8)
    lake.put("young.parquet")
    due = [path for path, (_, _, is_due) in orphans(lake).items() if is_due]
    assert list(lake.vacuum(dry_run=True, grace="0").files_to_delete) == due


def test_the_command_lists_orphans_on_screen_and_in_json(tmp_path, capsys):
    path = make_table(tmp_path / "t", commits=1)
    (path / "left by a dead writer.parquet").write_bytes(b"12345")
    assert run(["inspect", str(path), "--orphans"]) == 0
    assert "too young  left by a dead writer.parquet" in capsys.readouterr().out
    assert run(["inspect", str(path), "--orphans", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["orphans"]
    assert (found["path"], found["bytes"]) == ("left by a dead writer.parquet", 5)
    assert open_table(path).orphans()["path"].to_pylist() == [found["path"]]
    assert run(["inspect", str(path), "--orphans", "--files"]) == 2


def test_a_cleanup_says_whether_it_would_have_seen_unfinished_uploads(tmp_path):
    path = make_aged_table(tmp_path / "t")
    assert open_table(path).clean_logs(dry_run=True).sees_unfinished_uploads
    options = {"region": "eu", "access_key_id": "key", "secret_access_key": "secret"}
    assert not open_store("s3://bucket/t", options).sees_unfinished_uploads
