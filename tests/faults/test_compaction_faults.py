"""Damaged inputs, outputs, ledgers: no wrong row is committed, and the next call ends the job."""

from __future__ import annotations

import json
import shutil
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lakehand.errors import CorruptFileError, LakehandError
from lakehand.observe.steps import Step, listen
from lakehand.runs import list_runs
from support.compactions import (
    CLUSTER,
    CLUSTER_BY_MANY_TASKS,
    COMPACT,
    EVERY_REWRITE,
    compact_inline,
    leave_dead_run,
    open_table,
    rewrites_in_turn,
)
from support.golden import GOLDEN
from support.rows import assert_same_rows, lakehand_rows
from support.small_tables import make_table, read_sorted
from support.unharmed import assert_clean, assert_unharmed, live_files, staged_files


@pytest.fixture
def place(tmp_path):
    return make_table(tmp_path / "t")


@pytest.fixture
def rows(place):
    return read_sorted(place)


@pytest.fixture(autouse=True)
def stop_listening():
    yield
    listen(None)


def one_input(place, region="eu"):
    return min((place / f"region={region}").glob("part-*.parquet"))


def flip_bit(path, position, bit=0):
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def assert_other_group_is_done(place, report, *, codes):
    """The damaged group failed and is as it was; the other one is committed."""
    assert [error["code"] for error in report.errors] == [*codes]
    assert (report.groups.planned, report.groups.committed) == (2, 1)
    assert len(live_files(place)) == 7
    assert_clean(place)


def assert_next_call_ends_the_job(place, rows, rewrite):
    report = rewrite(place, "0s")

    assert (report.errors, len(live_files(place))) == ((), 2)
    assert_clean(place)
    assert_unharmed(place, rows)


# Inputs


@EVERY_REWRITE
def test_an_input_deleted_before_planning_fails_its_group(place, rows, rewrite):
    lost = one_input(place)
    lost.rename(place / "lost")

    report = rewrite(place)

    assert_other_group_is_done(place, report, codes=["FILE_NOT_FOUND"])
    assert lost.name in report.errors[0]["message"]
    (place / "lost").rename(lost)
    assert_next_call_ends_the_job(place, rows, rewrite)


@EVERY_REWRITE
def test_an_input_deleted_after_planning_fails_its_group(place, rows, rewrite):
    lost = one_input(place)

    def delete(event):
        if event.phase == "rewrite" and event.done == 0:
            lost.rename(place / "lost")

    report = rewrite(place, on_progress=delete)

    assert_other_group_is_done(place, report, codes=["FILE_NOT_FOUND"])
    (place / "lost").rename(lost)
    assert_next_call_ends_the_job(place, rows, rewrite)


def write_with_arrow(place, **options):
    """Write every data file anew, as options of pyarrow say, and correct the log."""
    sizes = {}
    for path in place.rglob("part-*.parquet"):
        pq.write_table(pq.ParquetFile(path).read(), path, **options)
        sizes[path.relative_to(place).as_posix()] = path.stat().st_size
    for commit in (place / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["size"] = sizes[action["add"]["path"]]
        commit.write_text("\n".join(json.dumps(action) for action in actions))


def data_positions(path, count):
    """Return positions spread over the pages of a file, their headers included."""
    group = pq.read_metadata(path).row_group(0)
    end = sum(group.column(c).total_compressed_size for c in range(group.num_columns)) + 4
    return range(4, end, -(-(end - 4) // count))


def values_in(path):
    """Return where some values of an uncompressed file lie, as they are stored plainly.

    Neither the smallest nor the largest ones: those are in headers and footers, too.
    """
    table = pq.ParquetFile(path).read()
    stored = [struct.pack("<q", n) for n in table["id"].to_pylist()[1:3]]
    stored += [struct.pack("<d", x) for x in table["amount"].drop_null().to_pylist()[1:3]]
    return [path.read_bytes().index(value) for value in stored]


@rewrites_in_turn
@pytest.mark.parametrize("part", range(4))
def test_a_flipped_bit_of_a_value_in_a_page_with_a_checksum_is_always_found(
    place, rows, part, rewrite
):
    write_with_arrow(place, write_page_checksum=True, compression="none", use_dictionary=False)
    damaged = one_input(place)
    position = values_in(damaged)[part] + 2 * part
    flip_bit(damaged, position, bit=part)

    report = rewrite(place)

    assert_other_group_is_done(place, report, codes=["CORRUPT_FILE"])
    flip_bit(damaged, position, bit=part)
    assert_next_call_ends_the_job(place, rows, rewrite)


@rewrites_in_turn
@pytest.mark.parametrize("part", range(6))
def test_without_checksums_readers_see_after_a_flip_what_they_saw_before(place, part, rewrite):
    """What no decoder notices is a value like any other: it is moved as it is."""
    write_with_arrow(place, write_page_checksum=False, compression="snappy")
    damaged = one_input(place)
    flip_bit(damaged, data_positions(damaged, 6)[part], bit=part)
    assert_readers_see_the_same(place, rewrite)


@rewrites_in_turn
@pytest.mark.parametrize("part", range(8))
def test_a_flipped_bit_in_a_footer_is_found_or_changes_nothing(place, part, rewrite):
    damaged = one_input(place)
    size = damaged.stat().st_size
    footer = int.from_bytes(damaged.read_bytes()[-8:-4], "little")
    flip_bit(damaged, size - 8 - footer + part * footer // 8, bit=part)

    assert_readers_see_the_same(place, rewrite)


def assert_readers_see_the_same(place, rewrite):
    seen = rows_or_error(place)
    report = rewrite(place)

    if isinstance(seen, str):
        assert report.groups.committed == 1
    else:
        assert_same_rows(lakehand_rows(place), seen)
    assert_clean(place)


def rows_or_error(place):
    try:
        return lakehand_rows(place)
    except LakehandError as error:
        return error.code


@pytest.mark.skipif(not GOLDEN.exists(), reason="no golden tables")
def test_a_flipped_bit_in_a_deletion_vector_is_found(tmp_path):
    place = shutil.copytree(GOLDEN / "tables" / "dv-partitioned-with-checkpoint", tmp_path / "t")
    before = lakehand_rows(place)
    flip_vectors(place)

    with pytest.raises(CorruptFileError, match="its checksum does not match its bytes"):
        compact_inline(place)

    assert_clean(place)
    flip_vectors(place)
    assert_same_rows(lakehand_rows(place), before)
    assert compact_inline(place).errors == ()
    assert_same_rows(lakehand_rows(place), before)


def flip_vectors(place):
    for path in place.glob("deletion_vector_*.bin"):
        flip_bit(path, path.stat().st_size // 2)


# Outputs


def flip_middle(path):
    flip_bit(path, path.stat().st_size // 3)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def delete(path):
    path.unlink()


#: The method, the verb that chooses it, and how many rows a file has, so that it is chosen.
METHODS = {
    "recode": ("recode", COMPACT, 100),
    "copy": ("copy", COMPACT, 120_000),
    "sort": ("sort", CLUSTER, 100),
    "shuffle": ("sort", CLUSTER_BY_MANY_TASKS, 100),
}


@pytest.fixture(params=METHODS)
def table_by_method(request, tmp_path):
    """Return a table whose one group is rewritten by the method."""
    method, rewrite, rows_a_file = METHODS[request.param]
    for start in range(4):
        ids = pa.array(range(start * rows_a_file, (start + 1) * rows_a_file), pa.int64())
        data = pa.table({"id": ids, "amount": ids.cast(pa.float64())})
        write_deltalake(str(tmp_path / "t"), data, mode="append")
    return tmp_path / "t", rewrite, method


@pytest.mark.parametrize("damage", [flip_middle, truncate, delete])
def test_an_output_damaged_before_its_proof_is_never_committed(table_by_method, damage):
    place, rewrite, method = table_by_method
    rows = read_sorted(place)

    def act(step):
        if step is Step.TASK_WRITTEN:
            for output in place.glob("lakehand-*.parquet"):
                damage(output)

    listen(act)
    with pytest.raises(LakehandError) as error:
        rewrite(place)
    listen(None)

    assert error.value.code in {"PROOF_FAILED", "CORRUPT_FILE", "FILE_NOT_FOUND"}
    assert_clean(place)
    assert lakehand_rows(place).sort_by("id").equals(rows)
    report = rewrite(place)
    assert (getattr(report.methods, method), len(live_files(place))) == (1, 1)
    assert lakehand_rows(place).sort_by("id").equals(rows)
    assert read_sorted(place).equals(rows)


# Ledgers


@pytest.mark.parametrize("entry", ["run.json", "results/*.json", "groups/*.json", "stems/*.json"])
def test_a_ledger_that_cannot_be_read_is_left_alone_and_stops_nobody(place, rows, entry):
    run = leave_dead_run(place)
    (damaged,) = (place / run.key()).glob(entry)
    damaged.write_bytes(b"\x00" * 10)
    staged = staged_files(place)

    report = compact_inline(place, "0s")

    assert (report.groups.committed, len(live_files(place))) == (2, 2)
    assert report.groups.adopted == 0
    assert list_runs(open_table(str(place)).store) == [run.id]
    assert staged_files(place) == staged
    assert_unharmed(place, rows)
