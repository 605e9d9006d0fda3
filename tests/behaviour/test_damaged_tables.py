"""Every kind of damage is named by `verify`, and repaired, or refused with the reason."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lakehand import open_table
from lakehand.assess import structure_check
from lakehand.cli.main import run
from lakehand.errors import RefusedError
from lakehand.formats.delta.repair.findings import FINDINGS
from lakehand.formats.delta.table import DeltaTable
from lakehand.runs.operation import Call
from lakehand.settings import Settings
from support import damage
from support.damage import VERSIONS, ids_of, make_whole_table, read_ids
from support.hand_written_logs import add, metadata, new_log, protocol
from support.small_tables import fingerprint
from support.tasks_here import run_tasks_here

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALL = ids_of(0, 1, 2, 3, 4)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of damage, what it is called, and what becomes of the table."""

    break_table: Callable[[Path], object]
    names: set[str]
    #: What the table holds after a repair that loses nothing; None: it cannot be read.
    safely: list[int] | None = field(default_factory=lambda: ALL)
    #: Whether that repair leaves nothing wrong.
    is_safe: bool = False
    #: What the table holds after a repair that may lose something.
    at_a_loss: list[int] | None = field(default_factory=lambda: ALL)
    #: What stays wrong even then.
    left: set[str] = field(default_factory=set)
    #: What the repair asks for that may lose something.
    consent: str = "accept_data_loss"
    deep: bool = False

    @property
    def is_log_alone(self) -> bool:
        """Whether nothing but objects of the log, which are moved away, is concerned."""
        return bool(self.names & {"wrong_checksum_file", "stale_hadoop_sum", "checkpoint_differs"})


OLD = ids_of(0, 1, 2)
MOST = ids_of(0, 1, 2, 3)
REPLACED = sorted(MOST + ids_of(3))
KEPT = [i for i in ALL if i - 120 not in {3, 4, 7, 11, 18, 29}]
CASES = (
    Case(break_table=damage.lose_file, names={"missing_file"}, safely=None, at_a_loss=MOST),
    Case(
        break_table=damage.cut_file,
        names={"wrong_size", "unreadable_footer"},
        safely=None,
        at_a_loss=MOST,
    ),
    Case(
        break_table=damage.overwrite_footer,
        names={"unreadable_footer"},
        safely=None,
        at_a_loss=MOST,
    ),
    Case(
        break_table=damage.lose_a_row,
        names={"wrong_size", "wrong_row_count"},
        safely=None,
        at_a_loss=[i for i in ALL if i != 120],
        consent="accept_changed_files",
    ),
    Case(
        break_table=damage.expect_another_row,
        names={"wrong_row_count"},
        consent="accept_changed_files",
    ),
    Case(
        break_table=damage.replace_file,
        names={"wrong_statistics"},
        safely=REPLACED,
        at_a_loss=REPLACED,
        consent="accept_changed_files",
    ),
    Case(
        break_table=damage.change_file_with_hadoop_sum,
        names={"wrong_file_checksum"},
        left={"wrong_file_checksum"},
    ),
    *(
        Case(
            break_table=damage.garble_statistics(text),
            names={"unreadable_statistics"},
            is_safe=True,
        )
        for text in ("{", "[1]", '{"numRecords":30,"minValues":{"id":"x"}}', '{"minValues":[1]}')
    ),
    Case(
        break_table=damage.miscount_vector,
        names={"wrong_deletion_count"},
        safely=KEPT,
        is_safe=True,
    ),
    Case(
        break_table=damage.garble_vector,
        names={"bad_deletion_vector"},
        safely=None,
        consent="restore_deleted_rows",
    ),
    Case(
        break_table=damage.lose_vector,
        names={"missing_deletion_vector"},
        safely=None,
        consent="restore_deleted_rows",
    ),
    Case(
        break_table=damage.garble_vector,
        names={"bad_deletion_vector"},
        safely=None,
        at_a_loss=MOST,
    ),
    Case(
        break_table=damage.lose_vector,
        names={"missing_deletion_vector"},
        safely=None,
        at_a_loss=MOST,
    ),
    Case(
        break_table=damage.overwrite_pages,
        names={"unreadable_rows"},
        safely=None,
        at_a_loss=MOST,
        deep=True,
    ),
    Case(
        break_table=damage.narrow_bounds,
        names={"wrong_statistics"},
        consent="accept_changed_files",
        deep=True,
    ),
    Case(
        break_table=damage.miscount_nulls,
        names={"wrong_statistics"},
        consent="accept_changed_files",
        deep=True,
    ),
    # Version 1 lies below the checkpoint: only history is lost. Version 3 does not.
    Case(break_table=damage.lose_commit(1), names={"missing_commit"}),
    Case(break_table=damage.lose_commit(2), names={"missing_commit"}),
    Case(
        break_table=damage.lose_commit(3), names={"missing_commit"}, safely=None, at_a_loss=OLD
    ),
    Case(
        break_table=damage.lose_all_commits_from_the_checkpoint_on,
        names={"missing_commit"},
        safely=OLD,
        at_a_loss=OLD,
    ),
    Case(break_table=damage.cut_commit, names={"corrupt_commit"}, safely=None, at_a_loss=OLD),
    Case(break_table=damage.contradict, names={"corrupt_commit"}, safely=None, at_a_loss=OLD),
    Case(
        break_table=damage.empty_newest_commit,
        names={"corrupt_commit"},
        safely=None,
        at_a_loss=MOST,
    ),
    Case(
        break_table=damage.leave_a_line_blank,
        names={"malformed_commit"},
        left={"malformed_commit"},
    ),
    Case(
        break_table=damage.add_twice_in_one_commit,
        names={"malformed_commit"},
        left={"malformed_commit"},
    ),
    Case(
        break_table=damage.say_twice_what_the_table_is,
        names={"corrupt_commit"},
        at_a_loss=MOST,
    ),
    Case(
        break_table=damage.turn_back_time, names={"wrong_commit_time"}, left={"wrong_commit_time"}
    ),
    Case(
        break_table=damage.list_an_unknown_feature,
        names={"unknown_feature"},
        left={"unknown_feature"},
    ),
    Case(break_table=damage.list_for_readers_only, names={"wrong_feature"}, left={"wrong_feature"}),
    Case(
        break_table=damage.forget_metadata,
        names={"incomplete_log"},
        safely=None,
        at_a_loss=None,
        left={"incomplete_log"},
    ),
    Case(
        break_table=damage.break_checkpoint,
        names={"broken_checkpoint", "stale_last_checkpoint"},
        is_safe=True,
    ),
    Case(
        break_table=damage.leave_file_out_of_checkpoint,
        names={"checkpoint_differs", "stale_last_checkpoint"},
        is_safe=True,
    ),
    Case(
        break_table=damage.leave_tombstone_out_of_checkpoint,
        names={"checkpoint_differs"},
        is_safe=True,
    ),
    Case(
        break_table=damage.put_part_of_checkpoint, names={"incomplete_checkpoint"}, is_safe=True
    ),
    Case(break_table=damage.break_pointer, names={"corrupt_last_checkpoint"}, is_safe=True),
    Case(break_table=damage.point_nowhere, names={"stale_last_checkpoint"}, is_safe=True),
    Case(break_table=damage.lose_pointer, names={"missing_last_checkpoint"}, is_safe=True),
    Case(
        break_table=damage.miscount_in_checksum_file,
        names={"wrong_checksum_file"},
        consent="accept_changed_files",
    ),
    Case(
        break_table=damage.miscount_in_an_older_checksum_file,
        names={"wrong_checksum_file"},
        consent="accept_changed_files",
    ),
    Case(break_table=damage.garble_checksum_file, names={"wrong_checksum_file"}, is_safe=True),
    Case(
        break_table=damage.leave_old_hadoop_sum,
        names={"stale_hadoop_sum"},
        consent="accept_changed_files",
    ),
    Case(
        break_table=damage.leave_old_sum_of_the_pointer, names={"stale_hadoop_sum"}, is_safe=True
    ),
    Case(
        break_table=damage.leave_checksums_of_a_later_version,
        names={"stale_hadoop_sum", "wrong_checksum_file"},
    ),
    Case(
        break_table=damage.lose_file_from_commits,
        names={"checkpoint_differs", "stale_last_checkpoint"},
        at_a_loss=ids_of(0, 2, 3, 4),
    ),
    Case(
        break_table=damage.lose_removal_from_commits,
        names={"checkpoint_differs", "stale_last_checkpoint"},
        safely=MOST,
    ),
    Case(
        break_table=damage.lose_vector_from_commits,
        names={"checkpoint_differs", "stale_last_checkpoint"},
        safely=KEPT,
    ),
    Case(
        break_table=damage.lose_metadata_from_commits,
        names={"checkpoint_differs", "stale_last_checkpoint"},
    ),
    Case(
        break_table=damage.lose_transaction_from_commits,
        names={"checkpoint_differs", "stale_last_checkpoint"},
    ),
)  # fmt: skip
IDS = [case.break_table.__name__ for case in CASES]


@pytest.fixture(autouse=True)
def tasks_inline(monkeypatch):
    run_tasks_here(monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_whole_table(tmp_path_factory.mktemp("damage") / "table")


@pytest.fixture
def path(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "table")


def names(findings) -> set[str]:
    return {finding.name for finding in findings}


def ids_or_none(path) -> list[int] | None:
    try:
        return read_ids(path)
    except Exception:  # noqa: BLE001  whatever it is: nobody can read the table
        return None


def test_a_whole_table_is_sound_and_needs_no_repair(path):
    before = fingerprint(path)
    report = open_table(path).verify(proofs=False, deep=True)
    assert (report.outcome, report.findings, report.readable_version) == ("sound", (), 4)
    assert (report.commits_checked, report.checkpoints_checked, report.files_checked) == (5, 1, 5)
    assert open_table(path).repair(accept_data_loss=True).outcome == "nothing_to_do"
    assert fingerprint(path) == before


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.one_in(6)
def test_damage_is_named_and_repaired_without_loss_or_at_a_loss_with_consent(case, path):
    case.break_table(path)
    table = open_table(path, engine="local")
    before = fingerprint(path)
    dry = table.repair(deep=case.deep, dry_run=True)
    assert (names(dry.findings), fingerprint(path)) == (case.names, before)

    done = table.repair(deep=case.deep)

    assert (done.repairs, done.refused) == (dry.repairs, dry.refused)
    assert done.outcome == ("committed" if done.repairs else "refused")
    assert bool(done.remaining) is not case.is_safe
    assert names(done.remaining) == {refusal.name for refusal in done.refused}
    assert ids_or_none(path) == case.safely
    if not case.is_safe:
        assert_repaired_with_consent(case, path, done)


def assert_repaired_with_consent(case, path, refused):
    asked = {name for refusal in refused.refused for name in refusal.consent}
    assert case.consent in asked or case.left == case.names

    done = open_table(path, engine="local").repair(deep=case.deep, **{case.consent: True})

    assert names(done.remaining) == case.left
    assert {refusal.name for refusal in done.refused} >= case.left
    assert bool(done.repairs) is (case.left != case.names)
    assert any(repair.loses for repair in done.repairs) or not done.repairs or case.is_log_alone
    assert ids_or_none(path) == case.at_a_loss


def test_files_in_the_table_twice_are_named(path):
    damage.add_twice(path)
    [found] = open_table(path).verify(proofs=False).findings
    assert (found.name, found.found) == ("duplicate_file", "2")
    [refused] = open_table(path).repair(accept_data_loss=True).refused
    assert "which of the entries" in refused.reason


def test_a_lost_vector_is_repaired_with_the_rows_or_without_the_file(path):
    damage.lose_vector(path)
    [refused] = open_table(path).repair().refused
    assert refused.consent == ("restore_deleted_rows", "accept_data_loss")
    both = open_table(path).repair(restore_deleted_rows=True, accept_data_loss=True, dry_run=True)
    [repair] = both.repairs
    assert repair.name == "restore_deleted_rows"
    assert repair.loses == "the deletion of rows: 6, as far as recorded, become visible again"


def test_a_file_that_was_replaced_shows_until_somebody_agrees_to_it(path, capsys):
    """Equal size and equal row count hide nothing, with or without decoding rows."""
    damage.replace_file(path)
    for deep in ([], ["--deep"]):
        assert run(["repair", str(path), "--json", *deep]) == 5
        report = json.loads(capsys.readouterr().out)
        assert (report["outcome"], report["repairs"]) == ("refused", [])
        [refused] = report["refused"]
        assert refused["consent"] == ["accept_changed_files"]
        assert "--accept-changed-files" in refused["reason"]
        assert run(["verify", str(path), "--no-proofs", *deep]) == 5
        capsys.readouterr()
    assert run(["repair", str(path), "--deep", "--accept-changed-files"]) == 0
    assert "if they were replaced" in capsys.readouterr().out


def test_several_things_are_repaired_one_after_the_other(path):
    damage.miscount_vector(path)
    damage.data_file(path, 0).unlink()
    damage.rewrite_commit(path, 3, lambda line: line.get("add", {}).update(stats="{"))
    done = open_table(path).repair(accept_data_loss=True)
    assert {repair.name for repair in done.repairs} == {
        "drop_files", "correct_deletion_count", "recompute_statistics",
    }  # fmt: skip
    assert (done.remaining, read_ids(path)) == ((), [i for i in KEPT if i >= 30])


def test_a_file_that_must_not_be_looked_at_is_named():
    store = new_log([protocol(), metadata(), add("..%2Foutside")])
    found = structure_check.check_structure(
        Call(operation="verify", table=DeltaTable(store), settings=Settings())
    ).findings
    assert names(found) == {"unreachable_file"}


def test_many_files_are_looked_at_in_tasks_of_their_own(path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(structure_check, "_FILES_HERE", 0)
    monkeypatch.setattr(structure_check, "_FILES_PER_TASK", 2)
    damage.lose_file(path)
    damage.narrow_bounds(path)
    seen = []
    report = open_table(path, engine="local").verify(
        proofs=False, deep=True, on_progress=seen.append
    )
    assert names(report.findings) == {"missing_file"}
    assert [(event.phase, event.done) for event in seen] == [
        ("files", 2), ("files", 4), ("files", 5), ("rows", 4),
    ]  # fmt: skip


def test_a_pin_on_a_version_that_a_repair_gives_up_is_named_until_it_is_dropped(path):
    table = open_table(path, engine="local")
    table.pin("audit", version=VERSIONS - 1)
    damage.cut_commit(path)

    dry = table.repair(accept_data_loss=True, dry_run=True)
    done = table.repair(accept_data_loss=True)

    assert names(dry.findings) == {"corrupt_commit", "lost_pin"}
    [left] = done.remaining
    assert (left.name, left.version, left.expected) == ("lost_pin", VERSIONS - 1, "audit")
    assert [refusal.name for refusal in done.refused] == ["lost_pin"]
    with pytest.raises(RefusedError, match="'audit'"):
        table.vacuum()
    table.unpin("audit")
    assert table.verify(proofs=False).outcome == "sound"
    assert table.vacuum().holders == ()


def test_a_pin_that_cannot_be_read_is_named(path):
    (path / "_lakehand" / "pins").mkdir(parents=True)
    (path / "_lakehand" / "pins" / "audit.json").write_text("{")
    [found] = open_table(path).verify(proofs=False).findings
    assert (found.name, "audit" in found.message) == ("lost_pin", True)


def test_every_kind_of_finding_is_shown_by_a_damaged_table():
    shown = {name for case in CASES for name in case.names}
    assert shown | {"duplicate_file", "duplicate_entry", "unreachable_file"} == FINDINGS.keys()


def test_lost_files_are_listed_with_their_rows_and_leave_in_a_commit_that_says_so(path):
    damage.lose_file(path)
    done = open_table(path).repair(accept_data_loss=True)
    [dropped] = done.files_dropped
    assert (dropped.path, dropped.name, dropped.rows) == (
        damage.data_file(path, 4).name, "missing_file", 30,
    )  # fmt: skip
    assert (done.rows_dropped, done.version) == (30, 5)
    [remove] = [line["remove"] for line in damage.actions(path, 5) if "remove" in line]
    assert remove["dataChange"] is True
    assert open_table(path).history(limit=1)[0].operation == "REPAIR"


def test_a_table_that_has_lost_all_its_files_is_not_emptied(path):
    for file in path.glob("*.parquet"):
        file.unlink()
    before = fingerprint(path)
    done = open_table(path).repair(accept_data_loss=True)
    assert (len(done.refused), fingerprint(path)) == (5, before)
    assert "wrong location" in done.refused[0].reason


def test_what_leaves_the_log_is_set_aside_byte_for_byte(path):
    damage.cut_commit(path)
    cut = damage.commit_file(path, 3).read_bytes()
    later = damage.commit_file(path, 4).read_bytes()
    done = open_table(path).repair(accept_data_loss=True)
    aside = path / done.aside / "_delta_log"
    assert (aside / f"{3:020}.json").read_bytes() == cut
    assert (aside / f"{4:020}.json").read_bytes() == later
    assert done.repairs[0].loses.startswith("versions 3 to 4")


def test_a_young_part_of_a_checkpoint_may_be_somebodys_work(path):
    damage.put_part_of_checkpoint(path)
    [part] = (path / "_delta_log").glob("*.checkpoint.*.*.parquet")
    then = time.time() - 2 * 60 * 60
    os.utime(part, (then, then))
    [refused] = open_table(path).repair().refused
    assert "younger than a day" in refused.reason
    assert part.exists()
    part.touch()
    assert open_table(path).verify(proofs=False).outcome == "sound"


def test_nothing_is_written_to_a_table_with_features_that_nobody_knows(path):
    damage.list_an_unknown_feature(path)
    damage.break_pointer(path)
    before = fingerprint(path)
    done = open_table(path).repair(accept_data_loss=True)
    assert (done.outcome, fingerprint(path)) == ("refused", before)
    assert {refusal.name for refusal in done.refused} >= {"corrupt_last_checkpoint"}


def test_rows_of_an_append_only_table_are_not_dropped(path):
    [meta] = [line["metaData"] for line in damage.actions(path, 0) if "metaData" in line]
    damage.commit_by_hand(
        path, {"metaData": meta | {"configuration": {"delta.appendOnly": "true"}}}
    )
    damage.lose_file(path)
    [refused] = open_table(path).repair(accept_data_loss=True).refused
    assert "delta.appendOnly" in refused.reason


def test_the_commands_say_it_in_json_and_by_their_exit_codes(path, capsys):
    damage.lose_file(path)
    assert run(["verify", str(path), "--no-proofs", "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert [found["name"] for found in document["findings"]] == ["missing_file"]
    assert run(["repair", str(path), "--json"]) == 5
    assert run(["repair", str(path), "--accept-data-loss", "--dry-run"]) == 0
    assert run(["repair", str(path), "--accept-data-loss"]) == 0
    assert run(["verify", str(path), "--no-proofs"]) == 0
    assert read_ids(path) == MOST
