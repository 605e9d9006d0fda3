"""Lance tables with damaged manifests: typed errors, findings, and repairs that lose no row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import CommitUnknownError, CorruptFileError, CorruptLogError
from lakehand.formats.lance import commit
from lakehand.formats.lance.connect import reading
from lakehand.storage import open_store
from support.formats import open_here, vacuum_later
from support.fuzz_bases import rows

NEWEST, OLDER = 4, 2


@pytest.fixture
def path(tmp_path):
    root = tmp_path / "table"
    table = lakehand.create_table(root, rows(0).schema, format="lance", engine="local")
    for start in (0, 8, 16):
        table.append(rows(start))
    return root


def damage(path, version, change):
    manifest = path / "_versions" / f"{2**64 - 1 - version}.manifest"
    before = manifest.read_bytes()
    manifest.write_bytes(change(before))
    assert manifest.read_bytes() != before
    return manifest


def doubled_byte(content):
    """Move all that follows by one byte, so that Lance looks for the manifest where it is not."""
    return content[:9] + content[8:]


def cut_off(content):
    return content[:200]


def unknown_type(content):
    return content.replace(b"double", b"doubld")


def without_files(content):
    """Make the data file of a fragment, its field 2, a field that nobody knows."""
    before, _, after = content.rpartition(b"\x12D\n1lakehand-")
    return before + b"\x52D\n1lakehand-" + after


def outside(content):
    """Name data files `../..` and so on, in as many bytes as before."""
    return content.replace(b"lakehand-", b"../../ab-")


@pytest.mark.parametrize("change", [doubled_byte, unknown_type, without_files, outside, cut_off])
def test_a_damaged_manifest_is_a_corrupt_log_and_a_finding(path, change):
    manifest = damage(path, NEWEST, change)
    with pytest.raises(CorruptLogError, match=f"version {NEWEST}|fragment") as caught:
        open_here(path).to_arrow()
    assert "lakehand verify" in caught.value.hint

    report = open_here(path).verify(deep=True)

    assert (report.outcome, report.readable_version) == ("damaged", NEWEST - 1)
    [found] = report.findings
    assert (found.name, found.version) == ("corrupt_commit", NEWEST)
    assert found.path == f"_versions/{manifest.name}"


def test_the_error_names_the_version_and_its_manifest(path):
    manifest = damage(path, OLDER, doubled_byte)
    with pytest.raises(CorruptLogError, match=f"version {OLDER} of .*{manifest.name}") as caught:
        open_here(path).history()
    assert (caught.value.version, caught.value.path) == (OLDER, f"_versions/{manifest.name}")


def test_a_column_that_lance_cannot_read_by_its_name_is_a_typed_error(path):
    damage(path, NEWEST, lambda old: old.replace(b"region", b"regio`"))
    with pytest.raises(CorruptFileError, match="regio`"):
        open_here(path).to_arrow()
    with pytest.raises(CorruptFileError, match="regio`"):
        open_here(path).compact(min_files=2)


@pytest.mark.parametrize("change", [doubled_byte, cut_off])
def test_vacuum_deletes_nothing_while_an_older_version_cannot_be_read(path, change):
    open_here(path).overwrite(rows(100))
    damage(path, OLDER, change)
    files = sorted((path / "data").iterdir())
    with pytest.raises(CorruptLogError):
        vacuum_later(path)
    assert sorted((path / "data").iterdir()) == files


def test_repair_gives_up_an_older_version_only_if_that_is_accepted(path):
    manifest = damage(path, OLDER, doubled_byte)
    content, before = manifest.read_bytes(), open_here(path).to_arrow()
    [refusal] = open_here(path).repair().refused
    assert (refusal.version, refusal.consent) == (OLDER, ("accept_data_loss",))
    assert manifest.exists()

    report = open_here(path).repair(accept_data_loss=True)

    assert ([done.name for done in report.repairs], report.remaining) == (["forget_history"], ())
    assert Path(path, report.aside, "_versions", manifest.name).read_bytes() == content
    assert open_here(path).to_arrow().equals(before)
    assert [entry.version for entry in open_here(path).history()] == [4, 3, 1]
    vacuum_later(path)
    assert open_here(path).to_arrow().equals(before)


def test_a_rewrite_whose_versions_cannot_be_read_back_is_unknown(path, monkeypatch):
    def unreadable(*_, **__):
        raise CorruptLogError("version 5 cannot be read")

    monkeypatch.setattr(commit, "named_files", unreadable)
    with pytest.raises(CommitUnknownError, match="version 5 cannot be read"):
        open_here(path).compact(min_files=2)
    monkeypatch.undo()
    assert open_here(path).to_arrow().num_rows == 24
    assert open_here(path).verify(deep=True).outcome == "sound"


def test_an_interrupt_is_not_taken_for_damage(path):
    with pytest.raises(KeyboardInterrupt), reading(open_store(path)):
        raise KeyboardInterrupt


def test_deleted_rows_are_counted_where_the_manifest_does_not_say_how_many(path):
    open_here(path).delete(where="id in (1, 2, 9)")
    before = open_here(path).to_arrow()

    # `num_deleted_rows` of the first fragment, field 4 of its deletion file, becomes field 6.
    damage(path, NEWEST + 1, lambda old: old.replace(b"\x20\x02\x20\x08", b"\x30\x02\x20\x08"))

    assert open_here(path).snapshot().files["deleted_rows"].to_pylist() == [2, 1, 0]
    assert open_here(path).verify(deep=True).outcome == "sound"
    open_here(path).compact(min_files=2)
    assert open_here(path).to_arrow().sort_by("id").equals(before.sort_by("id"))


def test_fragments_whose_rows_no_manifest_counts_are_read_checked_and_rewritten(path):
    before = open_here(path).to_arrow()
    # `physical_rows`, field 4 of a fragment, becomes field 15.
    damage(path, NEWEST, lambda old: old.replace(b"\x30\xa3\x08\x20\x08", b"\x30\xa3\x08\x78\x08"))
    assert open_here(path).snapshot().files["rows"].to_pylist() == [None] * 3

    assert open_here(path).to_arrow().equals(before)
    assert open_here(path).verify(deep=True).outcome == "sound"
    open_here(path).delete(where="id = 1")
    open_here(path).compact(min_files=2)
    assert sorted(open_here(path).to_arrow()["id"].to_pylist()) == [0, *range(2, 24)]


def test_a_zero_in_a_name_of_a_data_file_does_not_abort_the_process(tmp_path):
    # Lance quotes the name in its error, which it hands over as a C string.
    table = lakehand.create_table(tmp_path, pa.schema({"id": pa.int64()}), format="lance")
    table.append(pa.table({"id": [1, 2, 3]}))
    (file,) = (tmp_path / "data").iterdir()
    damaged = file.read_bytes().replace(b".PageLayout", b".Page\0\0\0\0ut")
    assert damaged != file.read_bytes()
    file.write_bytes(damaged)
    with pytest.raises(lakehand.LakehandError):
        table.to_arrow()
    assert "unreadable_rows" in {finding.name for finding in table.verify(deep=True).findings}
