"""Lance tables under the verbs that read: what they say, and what they refuse."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakehand
from lakehand.errors import (
    CorruptLogError,
    NotInstalledError,
    ProofError,
    RefusedError,
    VersionNotFoundError,
)
from lakehand.formats.lance import rewriting, writing
from support.compactions import tasks_inline
from support.lance_tables import (
    ROWS,
    compact_lance,
    fragment_count,
    make_lance,
    rows_of,
    some_rows,
    unknown_files,
)


@pytest.fixture
def path(tmp_path):
    return make_lance(tmp_path / "t")


def test_the_format_is_found_from_the_root(path):
    table = lakehand.open_table(path)
    assert (table.format, table.inspect().format) == ("lance", "lance")


def test_a_missing_library_is_one_sentence_with_the_command(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(NotInstalledError, match="the Lance library is not installed") as caught:
        lakehand.open_table(path)
    assert "pip install 'lakehand[lance]'" in caught.value.hint


def test_inspect_counts_fragments_rows_and_deleted_rows(path):
    lance.dataset(path).delete("id < 10")
    found = lakehand.open_table(path).inspect()
    assert (found.file_count, found.row_count, found.deleted_row_count) == (8, 8 * ROWS - 10, 10)
    assert (found.small_file_count, found.commits_since_checkpoint) == (8, 0)
    assert found.total_bytes == sum(f.stat().st_size for f in Path(path, "data").iterdir())


def test_rows_are_read_as_lance_reads_them(path):
    lance.dataset(path).delete("id % 2 = 0")
    table = lakehand.open_table(path)
    assert table.to_arrow() == lance.dataset(path).to_table()
    few = table.to_arrow(columns=["word"], where="id BETWEEN 60 AND 66")
    assert few["word"].to_pylist() == ["word5 common", "word0 common", "word2 common"]


def test_earlier_versions_are_read_by_number_and_time(path):
    table = lakehand.open_table(path)
    assert table.to_arrow(version=3).num_rows == 3 * ROWS
    at = table.snapshot(version=4).at
    assert table.snapshot(timestamp=at).version == 4
    with pytest.raises(VersionNotFoundError):
        table.snapshot(version=99)


def test_history_tells_commits_and_keeps_the_proof_of_ours(path):
    lance.dataset(path).delete("id = 5")
    compact_lance(path)
    newest, reserving, deletion, *_ = lakehand.open_table(path).history()
    assert (newest.operation, newest.proof["rows"]) == ("compact", 8 * ROWS - 1)
    assert (reserving.operation, reserving.proof) == (None, None)
    assert (deletion.operation, deletion.parameters) == ("Delete", {"predicate": "id = 5"})


def test_a_difference_names_fragments_that_came_and_went(path):
    lance.dataset(path).delete("id = 5")
    change = lakehand.open_table(path).diff(8, 9)
    assert (change.added.num_rows, change.removed.num_rows) == (1, 1)
    assert change.added["deleted_rows"].to_pylist() == [1]


def test_verify_finds_nothing_wrong_and_checks_proofs_again(path):
    compact_lance(path)
    report = verified(path)
    assert (report.outcome, report.findings, report.proof_outcome) == ("sound", (), "equal")
    assert (report.proofs[0].inputs.rows, report.proofs[0].inputs.files) == (8 * ROWS, 8)


def test_verify_says_which_file_is_gone_and_how_many_rows_with_it(path):
    file = next(Path(path, "data").iterdir())
    file.unlink()
    (finding,) = verified(path).findings
    assert (finding.name, finding.path) == ("missing_file", f"data/{file.name}")
    assert finding.rows == ROWS


def test_verify_finds_bytes_that_are_cut_off_and_bytes_that_are_wrong(path):
    cut, bad, *_ = sorted(Path(path, "data").iterdir())
    cut.write_bytes(cut.read_bytes()[:-1])
    bad.write_bytes(bytes(len(bad.read_bytes())))
    findings = verified(path, deep=True).findings
    assert {(f.name, f.path) for f in findings} == {
        ("wrong_size", f"data/{cut.name}"),
        ("unreadable_rows", f"data/{bad.name}"),
    }


def test_verify_cannot_compare_when_the_version_before_is_gone(path):
    compact_lance(path)
    version = lance.dataset(path).version
    (Path(path) / "_versions" / f"{2**64 - version}.manifest").unlink()
    (check,) = verified(path).proofs
    assert (check.outcome, check.reason) == ("cannot_compare", "inputs_gone")


def verified(path, **options):
    return lakehand.open_table(path, engine="local").verify(**options)


def test_a_broken_manifest_is_a_corrupt_log(tmp_path):
    (tmp_path / "_versions").mkdir()
    (tmp_path / "_versions" / "1.manifest").write_text("x")
    with pytest.raises(CorruptLogError, match="cannot be read"):
        lakehand.open_table(tmp_path).inspect()


def test_repair_sets_a_broken_newest_version_aside_if_that_loss_is_accepted(path):
    manifest = Path(path) / "_versions" / f"{2**64 - 1 - 8}.manifest"
    manifest.write_text("x" * 100)
    table = lakehand.open_table(path, engine="local")
    refused = table.repair()
    assert (refused.outcome, refused.refused[0].version) == ("refused", 8)
    assert table.repair(accept_data_loss=True, dry_run=True).repairs[0].loses
    assert manifest.exists()

    report = table.repair(accept_data_loss=True)

    assert (report.outcome, report.version, report.remaining) == ("committed", 7, ())
    assert rows_of(path).num_rows == 7 * ROWS
    assert Path(path, report.aside, "_versions", manifest.name).read_text() == "x" * 100
    lance.write_dataset(some_rows(900), path, mode="append")
    assert rows_of(path).num_rows == 8 * ROWS


def test_health_of_a_compacted_table_is_full(path):
    compact_lance(path)
    report = lakehand.open_table(path).health()
    assert (report.healthy, report.score) == (True, 100)


def test_a_rewrite_that_loses_a_row_is_not_committed_and_leaves_no_file(path, monkeypatch):
    rewritten_by_lance(path)
    rows = rows_of(path)
    run = rewriting.run_task

    def lossy(dataset, fragments, options):
        return run(dataset, fragments[:-1], options)

    monkeypatch.setattr("lakehand.formats.lance.rewriting.run_task", lossy)
    with pytest.raises(ProofError, match="512 rows were read, but 448 were written"):
        compact_lance(path)
    assert (rows_of(path), fragment_count(path)) == (rows, 8)
    assert unknown_files(path) == set()


def rewritten_by_lance(path):
    """Give a table an index: where rows go is then Lance's to know."""
    lance.dataset(path).create_scalar_index("id", "BTREE")


@pytest.mark.parametrize("damage", ["lost", "changed", "twice"])
def test_rows_that_lakehand_writes_wrongly_are_not_committed(path, monkeypatch, damage):
    rows, write, done = rows_of(path), writing.FragmentWriter.write, []

    def wrong(self, batch):
        if damage == "lost" and not done:
            batch = batch.slice(1)
        if damage == "changed" and not done:
            batch = batch.set_column(0, "id", pc.bit_wise_xor(batch["id"], 1))
        if damage == "twice" and not done:
            write(self, batch.slice(0, 1))
        done.append(batch.num_rows)
        write(self, batch)

    monkeypatch.setattr(writing.FragmentWriter, "write", wrong)
    with pytest.raises(ProofError):
        compact_lance(path)
    assert done
    assert (rows_of(path), fragment_count(path)) == (rows, 8)
    assert unknown_files(path) == set()


def test_a_rewrite_that_changes_a_value_is_not_committed_and_leaves_no_file(path, monkeypatch):
    rewritten_by_lance(path)
    run = rewriting.run_task

    def wrong(_dataset, _fragments, options):
        other = make_lance(Path(path).parent / "other")
        lance.dataset(other).update({"id": "8"}, where="id = 7")
        changed = lance.dataset(other)
        account = run(changed, changed.get_fragments(), options)
        (new,) = rewriting.staged_files(account)
        shutil.copy(Path(other, new.path), Path(path, new.path))
        return account

    monkeypatch.setattr("lakehand.formats.lance.rewriting.run_task", wrong)
    with pytest.raises(ProofError, match="have the digest"):
        compact_lance(path)
    assert rows_of(path)["id"].to_pylist() == list(range(8 * ROWS))
    assert unknown_files(path) == set()


def test_a_rewrite_that_gives_rows_other_ids_is_not_committed(tmp_path, monkeypatch):
    path = make_lance(tmp_path / "t", fragments=4, stable_row_ids=True)
    other = str(tmp_path / "other")
    for number in (3, 2, 1, 0):
        mode = "create" if number == 3 else "append"
        lance.write_dataset(some_rows(number * ROWS), other, mode=mode, enable_stable_row_ids=True)
    run = rewriting.run_task

    def wrong(_dataset, _fragments, options):
        same_rows = lance.dataset(other)
        account = run(same_rows, same_rows.get_fragments(), options)
        (new,) = rewriting.staged_files(account)
        shutil.copy(Path(other, new.path), Path(path, new.path))
        return account

    monkeypatch.setattr("lakehand.formats.lance.rewriting.run_task", wrong)
    with pytest.raises(ProofError, match="have the digest"):
        compact_lance(path)
    assert fragment_count(path) == 4


def test_a_proof_by_another_decoder_is_refused_for_there_is_none(path):
    with pytest.raises(ProofError, match="no second one can prove"):
        compact_lance(path, prove="independent")
    assert fragment_count(path) == 8


def test_a_shallow_clone_is_read_and_not_rewritten(path, tmp_path):
    lance.dataset(path).shallow_clone(str(tmp_path / "clone"), lance.dataset(path).version)
    clone = lakehand.open_table(tmp_path / "clone")
    assert clone.to_arrow().num_rows == 8 * ROWS
    with pytest.raises(RefusedError, match="outside of its root"), tasks_inline():
        clone.compact()


@pytest.mark.parametrize(
    ("verb", "reason"),
    [
        (lambda table: table.statistics(), "keeps no statistics"),
        (lambda table: table.deduplicate(key=["vector"]), "cannot be told apart by 'vector'"),
        (lambda table: table.checkpoint(), "complete in itself"),
    ],
)
def test_what_the_format_cannot_do_is_refused_with_the_reason(path, verb, reason):
    version = lance.dataset(path).version
    with pytest.raises(RefusedError, match=reason):
        verb(lakehand.open_table(path))
    assert lance.dataset(path).version == version


def test_an_empty_table_has_nothing_to_do(tmp_path):
    lance.write_dataset(some_rows(0, 0), str(tmp_path / "t"), schema=some_rows(0, 0).schema)
    table = lakehand.open_table(tmp_path / "t")
    assert (table.inspect().file_count, table.to_arrow().num_rows) == (0, 0)
    assert compact_lance(str(tmp_path / "t")).outcome == "nothing_to_do"


def test_a_proof_by_counts_compares_what_the_new_files_say(path):
    report = compact_lance(path, prove="counts")
    assert (report.proof.kind, report.proof.rows) == ("counts", 8 * ROWS)
    assert rows_of(path)["id"].to_pylist() == list(range(8 * ROWS))


def test_what_lance_cannot_restore_is_refused_and_nothing_is_changed(tmp_path):
    rows = pa.table({"id": [1, 2], "word": pa.array(["a", "b"]).dictionary_encode()})
    for mode in ("create", "append"):
        lance.write_dataset(rows, tmp_path / "t", mode=mode, data_storage_version="legacy")
    with pytest.raises(RefusedError, match=r"version 1 .* 'word'"):
        lakehand.open_table(tmp_path / "t").restore(version=1)
    assert lance.dataset(tmp_path / "t").version == 2
