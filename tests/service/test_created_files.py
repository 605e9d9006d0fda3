"""Files that the service creates: who may read them, and what is put where they shall be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lakehand.errors import ConfigError
from lakehand.service.config_template import write_config
from lakehand.service.store.database import open_database

pytestmark = pytest.mark.usefixtures("usual_umask")
PRIVATE = 0o600
SECRET = "a-password-that-others-may-not-read"
STORE = f"postgresql+psycopg://lakehand:{SECRET}@db/lakehand"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_no_other_user_can_read_the_job_store(tmp_path):
    database = open_database(f"sqlite:///{tmp_path}/new/jobs.db")
    files = sorted((tmp_path / "new").iterdir())
    assert [file.name for file in files] == ["jobs.db", "jobs.db-shm", "jobs.db-wal"]
    assert [mode(file) for file in files] == [PRIVATE] * 3
    database.close()


def test_a_job_store_that_was_deleted_is_not_created_for_all(tmp_path):
    database = open_database(f"sqlite:///{tmp_path}/jobs.db")
    for file in tmp_path.iterdir():
        file.unlink()
    database.create_tables()
    assert mode(tmp_path / "jobs.db") == PRIVATE
    database.close()


def test_a_job_store_that_its_owner_shares_stays_shared(tmp_path):
    file = tmp_path / "jobs.db"
    file.touch()
    file.chmod(0o660)
    open_database(f"sqlite:///{file}").close()
    open_database(f"sqlite:///{file}").close()
    assert mode(file) == 0o660


def test_a_configuration_without_a_password_is_as_the_umask_says(tmp_path):
    write_config(tmp_path / "lakehand.toml", include=["/data/lake"])
    assert mode(tmp_path / "lakehand.toml") == 0o644


@pytest.mark.parametrize("store", [STORE, f"postgresql+psycopg://db/lakehand?password={SECRET}"])
@pytest.mark.parametrize("force", [False, True])
def test_no_other_user_can_read_a_configuration_with_a_password(tmp_path, store, force):
    write_config(tmp_path / "lakehand.toml", store=store, force=force)
    assert mode(tmp_path / "lakehand.toml") == PRIVATE


def test_a_configuration_that_is_replaced_keeps_its_mode(tmp_path):
    file = tmp_path / "lakehand.toml"
    write_config(file)
    file.chmod(0o640)
    write_config(file, include=["/data/lake"], force=True)
    assert mode(file) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["lakehand.toml"]


def test_a_configuration_is_not_written_through_the_link_of_another(tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    for name in (f".lakehand.toml.{os.getpid()}", "lakehand.toml"):
        (tmp_path / name).symlink_to(target)
    with pytest.raises(ConfigError, match="exists already"):
        write_config(tmp_path / "lakehand.toml")
    write_config(tmp_path / "lakehand.toml", force=True)
    assert target.read_text() == "precious"
    assert not Path(tmp_path, "lakehand.toml").is_symlink()
