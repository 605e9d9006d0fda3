"""Credentials of profiles, as botocore resolves them, on a real S3 server."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import botocore.session
import pyarrow as pa
import pytest

import lakehand
from lakehand.errors import AccessDeniedError, ValidationError
from lakehand.storage import aws_credentials, open_store, parse_location
from lakehand.storage.aws_credentials import AccessKeys, AwsCredentials
from lakehand.storage.connection_options import connect_options
from support.s3_server import ACCESS_KEY, SECRET_KEY

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server
HTTP = {"allow_http": "true"}


class AwsFiles:
    """The files below `~/.aws`, and a program that hands out keys."""

    def __init__(self, home: Path, endpoint: str) -> None:
        self._home = home
        self._endpoint = endpoint
        self._calls = home / "calls"
        (home / ".aws").mkdir()

    def write(self, name: str, **sections: dict[str, str]) -> None:
        lines = []
        for section, values in sections.items():
            lines += [f"[{section}]", *(f"{key} = {value}" for key, value in values.items())]
        (self._home / ".aws" / name).write_text("\n".join(lines) + "\n")

    def profile(self, name: str, **values: str) -> None:
        of_all = {"region": "us-east-1", "endpoint_url": self._endpoint}
        self.write("config", **{f"profile {name}": of_all | values})

    def program(self, keys: dict[str, str]) -> str:
        """Return a `credential_process` that prints these keys, and counts its calls."""
        path = self._home / "keys.json"
        path.write_text(json.dumps({"Version": 1, **keys}))
        return f"sh -c 'echo >> {self._calls}; cat {path}'"

    @property
    def calls(self) -> int:
        return len(self._calls.read_text().splitlines())


def keys_for(lifetime: timedelta, key: str = ACCESS_KEY, secret: str = SECRET_KEY):
    expiry = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"AccessKeyId": key, "SecretAccessKey": secret, "Expiration": expiry}


@pytest.fixture
def files(tmp_path, s3_server, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return AwsFiles(tmp_path, s3_server.endpoint)


def write_and_read(uri, **options):
    store = open_store(uri, {**HTTP, **options})
    store.put("a", b"1")
    assert store.get("a") == b"1"
    return store


def test_a_profile_named_by_the_environment_is_used(files, s3_server, monkeypatch):
    files.profile("mine")
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    files.write("credentials", mine=keys, default={**keys, "aws_access_key_id": "another"})
    monkeypatch.setenv("AWS_PROFILE", "mine")
    write_and_read(s3_server.new_uri())


def test_a_profile_that_is_asked_for_wins_over_keys_of_the_environment(
    files, s3_server, monkeypatch
):
    files.profile("mine", aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    write_and_read(s3_server.new_uri(), profile="mine")


def test_a_table_is_maintained_with_a_profile_in_other_processes(files, s3_server, monkeypatch):
    files.profile("mine", credential_process=files.program(keys_for(timedelta(hours=1))))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    uri = s3_server.new_uri()
    table = lakehand.create_table(uri, pa.schema([("id", pa.int64())]), storage_options=HTTP)
    for number in range(4):
        table.append(pa.table({"id": [number]}))
    command = [sys.executable, "-m", "lakehand", "compact", uri, "--min-files", "2"]
    done = subprocess.run([*command, "--storage-option", "allow_http=true"], check=False)
    assert done.returncode == 0
    assert table.snapshot().file_count == 1
    assert files.calls <= 3, "one login for each process, not for each store"


def test_keys_are_renewed_before_they_expire(files, s3_server, monkeypatch):
    dying = files.program(keys_for(timedelta(seconds=2)))
    files.profile("mine", credential_process=dying)
    monkeypatch.setenv("AWS_PROFILE", "mine")
    store = write_and_read(s3_server.new_uri())
    before = files.calls
    files.program(keys_for(timedelta(hours=1)))
    monkeypatch.setattr(AccessKeys, "is_valid", property(lambda _: False))
    assert store.get("a") == b"1"
    assert files.calls > before


def test_a_pickled_store_takes_its_keys_to_a_machine_without_the_profile(
    files, s3_server, monkeypatch, tmp_path
):
    files.profile("mine", credential_process=files.program(keys_for(timedelta(hours=1))))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    store = write_and_read(s3_server.new_uri())
    pickled = tmp_path / "store"
    pickled.write_bytes(pickle.dumps(store))
    program = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).get('a'))"
    elsewhere = {"PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true"}
    before = files.calls
    done = subprocess.run(
        [sys.executable, "-c", program, pickled], env=elsewhere, capture_output=True, check=False
    )
    assert done.stdout == b"b'1'\n", done.stderr
    assert files.calls == before


def test_keys_that_cannot_be_renewed_are_used_until_the_store_refuses_them(files, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody-knows-it-here")
    monkeypatch.delenv("AWS_PROFILE")
    old = AccessKeys(
        access_key_id="A", secret_access_key="S", session_token=None, valid_until=datetime.now(UTC)
    )
    assert AwsCredentials(None, old).current() is old


def test_a_source_that_fails_for_a_moment_does_not_end_a_run(files, s3_server, monkeypatch, caplog):
    files.profile("mine", credential_process=files.program(keys_for(timedelta(hours=1))))
    store = write_and_read(s3_server.new_uri(), profile="mine")

    def fail(_profile):
        raise AccessDeniedError("the identity provider does not answer", operation="connect")

    monkeypatch.setattr(aws_credentials._SESSIONS, "keys_of", fail)
    monkeypatch.setattr(AccessKeys, "is_valid", property(lambda _: False))
    assert store.get("a") == b"1"
    assert "identity provider" in caplog.text
    with pytest.raises(AccessDeniedError, match="identity provider"):
        AwsCredentials("mine").current()


def test_keys_are_the_same_as_those_of_botocore(files, monkeypatch):
    pair = {"aws_access_key_id": "A", "aws_secret_access_key": "S", "aws_session_token": "T"}
    files.write(
        "config",
        default={"region": "eu-west-1", **pair},
        **{
            "profile b": {"region": "eu-west-2", "services": "local", **pair},
            "services local": {"s3": "\n  endpoint_url = https://s3.example"},
            "profile c": {"credential_process": files.program(keys_for(timedelta(hours=1)))},
        },
    )
    files.write("credentials", b=pair | {"aws_access_key_id": "of-b"})
    for profile in (None, "b", "c"):
        session = botocore.session.Session(profile=profile)
        expected = session.get_credentials().get_frozen_credentials()
        options = {"profile": profile} if profile else {}
        connection = connect_options(parse_location("s3://lake/t"), options)
        found = connection.as_options()
        assert found["access_key_id"] == expected.access_key
        assert found["secret_access_key"] == expected.secret_key
        assert found.get("session_token") == expected.token
        assert connection.config.get("region") == session.get_config_variable("region")
        assert connection.endpoint == ("https://s3.example" if profile == "b" else None)


def test_a_profile_that_does_not_exist_is_named_with_those_that_do(files):
    files.profile("mine")
    with pytest.raises(ValidationError, match="nope") as caught:
        open_store("s3://lake/t", {"profile": "nope"})
    assert "mine" in caught.value.hint


def test_a_login_that_is_missing_says_how_to_log_in(files, s3_server):
    files.profile("work", sso_session="corp", sso_account_id="1", sso_role_name="reader")
    config = {"sso_region": "us-east-1", "sso_start_url": "https://example.com/start"}
    path = files._home / ".aws" / "config"
    lines = [f"{key} = {value}" for key, value in config.items()]
    path.write_text(path.read_text() + "\n".join(["[sso-session corp]", *lines]))
    store = open_store(s3_server.new_uri(), {**HTTP, "profile": "work"})
    with pytest.raises(AccessDeniedError, match="corp") as caught:
        store.get("a")
    assert "aws sso login" in caught.value.hint


def test_no_key_is_ever_shown(files, s3_server):
    files.profile("mine", credential_process=files.program(keys_for(timedelta(hours=1))))
    store = write_and_read(s3_server.new_uri(), profile="mine")
    credentials = store._connection.credentials
    shown = f"{store!r} {store._connection!r} {credentials!r} {credentials.current()!r}"
    assert SECRET_KEY not in shown
    assert ACCESS_KEY not in shown


def test_a_profile_without_botocore_says_what_to_install(files, monkeypatch):
    files.profile("mine")
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ValidationError, match="botocore") as caught:
        open_store("s3://lake/t", {"profile": "mine"})
    assert "lakehand[aws]" in caught.value.hint
