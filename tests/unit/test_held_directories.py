"""Directories for pieces that wait: those of killed processes go, others stay."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

import lakehand
from lakehand import temporary
from lakehand.errors import StoreQuotaError
from lakehand.temporary import held_directory, scratch_errors, spill_prefix, user_directory


@pytest.fixture
def there(tmp_path):
    """Return a function that makes a directory of somebody else, long ago or just now."""

    def make(name, *, is_old):
        directory = tmp_path / f"lakehand-exchange-{name}"
        directory.mkdir()
        (directory / "rows").touch()
        if is_old:
            os.utime(directory, (0, 0))
        return directory

    return make


def test_what_killed_processes_left_goes(tmp_path, there):
    left = there("left", is_old=True)
    new = there("new", is_old=False)

    with held_directory(str(tmp_path), purpose="exchange") as mine:
        assert not left.exists()
        assert (new / "rows").exists()
        assert Path(mine).is_dir()

    assert not Path(mine).exists()


def test_what_another_process_uses_stays(tmp_path, there):
    in_use = there("in-use", is_old=True)
    descriptor = os.open(in_use, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    with held_directory(str(tmp_path), purpose="exchange") as mine:
        os.utime(mine, (0, 0))
        with held_directory(str(tmp_path), purpose="exchange"):
            assert (in_use / "rows").exists()
            assert Path(mine).is_dir()

    os.close(descriptor)


def test_a_directory_that_cannot_be_created_is_named(tmp_path):
    with (
        pytest.raises(StoreQuotaError, match=r"no scratch directory .*/gone: No such file"),
        held_directory(str(tmp_path / "gone"), purpose="exchange"),
    ):
        pytest.fail("it was created")


def test_a_table_that_is_opened_without_scratch_space_says_so(tmp_path, monkeypatch):
    lakehand.create_table(tmp_path / "t", pa.schema({"id": pa.int64()}))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))

    with pytest.raises(StoreQuotaError, match="no scratch directory can be created"):
        lakehand.open_table(tmp_path / "t").to_arrow()


def test_a_table_that_is_opened_while_no_directory_can_be_written_says_so(tmp_path, monkeypatch):
    lakehand.create_table(tmp_path / "t", pa.schema({"id": pa.int64()}))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/dev/null"])

    with pytest.raises(StoreQuotaError, match="no temporary directory can be used: No usable temp"):
        lakehand.open_table(tmp_path / "t").to_arrow()


def test_a_scratch_file_that_cannot_be_written_is_a_typed_error():
    with (
        pytest.raises(
            StoreQuotaError, match="rows cannot be kept in /dev: No space left"
        ) as caught,
        scratch_errors("/dev/full", "rows cannot be kept"),
        Path("/dev/full").open("wb") as file,
    ):
        file.write(b"x" * 2**20)
    assert "TMPDIR" in str(caught.value.hint)


def test_what_duckdb_spilled_goes_when_its_process_has_ended(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as process:
        living = Path(f"{temporary._SPILLED}{temporary._process_mark(process.pid)}-x")
        temporary._process_mark.cache_clear()
        (tmp_path / living / "data").mkdir(parents=True)
        mine = Path(spill_prefix(str(tmp_path)) + "x")
        mine.mkdir()
        other = tmp_path / living.name.replace(temporary._namespace(), "1")
        other.mkdir()

        with held_directory(str(tmp_path), purpose="scan"):
            assert (tmp_path / living).is_dir()
        process.kill()

    with held_directory(str(tmp_path), purpose="scan"):
        assert not (tmp_path / living).exists()
        assert mine.is_dir()
        assert other.is_dir(), "of another namespace: nothing is known of its process"


@pytest.mark.parametrize("name", ["", "x", "1-2", "0-1-0-x", "-1-2-3", "1--2-3"])
def test_directories_whose_names_tell_no_process_stay(tmp_path, name):
    odd = tmp_path / f"{temporary._SPILLED}{name}"
    odd.mkdir()
    with held_directory(str(tmp_path), purpose="scan"):
        assert odd.is_dir()


def test_copies_of_a_log_that_a_killed_process_left_go_with_the_next_rewrite(tmp_path):
    left = tmp_path / "lakehand-log-left"
    left.mkdir()
    os.utime(left, (0, 0))
    with held_directory(str(tmp_path), purpose="log", removes_abandoned=False):
        assert left.exists()
    with held_directory(str(tmp_path), purpose="rehearsal"):
        assert not left.exists()


def test_what_another_machine_spills_to_the_same_disk_is_left_alone(tmp_path, monkeypatch):
    """The first PID namespace has the same number on all machines."""

    def spilled():
        directory = tmp_path / f"{temporary._SPILLED}{temporary._namespace()}-{os.getpid()}-1-x"
        directory.mkdir(exist_ok=True)
        return directory

    here = spilled()
    monkeypatch.setattr("platform.node", lambda: "another")
    elsewhere = spilled()
    monkeypatch.undo()

    with held_directory(str(tmp_path), purpose="scan"):
        assert not here.exists()
        assert elsewhere.exists()


def test_what_shared_databases_spilled_goes_when_their_process_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = Path(user_directory(), f"{temporary._SPILLED}{temporary._namespace()}-1-1-x")
    left.mkdir()

    with held_directory(str(tmp_path), purpose="scan"):
        assert not left.exists()


@pytest.mark.parametrize("purpose", ["exchange", "log", "rehearsal", "scan"])
def test_no_other_user_can_enter_a_directory(tmp_path, purpose, usual_umask):
    with held_directory(str(tmp_path), purpose=purpose) as mine:
        assert stat.S_IMODE(Path(mine).stat().st_mode) == 0o700


def test_the_directory_of_a_user_is_one_for_all_processes(tmp_path, monkeypatch, usual_umask):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = user_directory()

    assert user_directory() == place == str(tmp_path / f"lakehand-{os.geteuid()}")
    assert stat.S_IMODE(Path(place).stat().st_mode) == 0o700


def _open_to_all(place):
    place.mkdir()
    place.chmod(0o777)


def _link(place):
    place.with_name("elsewhere").mkdir(mode=0o700)
    place.symlink_to(place.with_name("elsewhere"))


@pytest.mark.parametrize("take", [_open_to_all, _link, Path.touch])
def test_the_name_of_a_users_directory_may_be_taken(tmp_path, monkeypatch, take):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    taken = tmp_path / f"lakehand-{os.geteuid()}"
    take(taken)

    place = Path(user_directory())

    assert place != taken
    assert stat.S_IMODE(place.lstat().st_mode) == 0o700
    assert user_directory() == str(place)
