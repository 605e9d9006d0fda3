"""Roles, logins of SSO and web identities: keys are those that boto3 finds."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from support.aws_identity import run_aws_identity

START = "https://portal.example/start"
ROLE = "arn:aws:iam::123456789012:role/maintainer"
CONFIG = f"""
[profile base]
aws_access_key_id = base
aws_secret_access_key = s
[profile role]
region = eu-west-1
role_arn = {ROLE}
source_profile = base
external_id = seven
[profile role-of-role]
role_arn = {ROLE}-2
source_profile = role
[profile sso]
sso_session = corp
sso_account_id = 123456789012
sso_role_name = reader
[sso-session corp]
sso_start_url = {START}
sso_region = eu-west-1
[profile old-sso]
sso_start_url = {START}/old
sso_region = eu-west-1
sso_account_id = 123456789012
sso_role_name = writer
[profile role-of-sso]
role_arn = {ROLE}-3
source_profile = sso
[profile web]
role_arn = {ROLE}-4
web_identity_token_file = HOME/token
"""


#: The access key of each profile: the stand-in names keys after what was asked for.
KEYS = {
    "base": "base",
    "role": f"{ROLE} seven",
    "role-of-role": f"{ROLE}-2",
    "sso": "123456789012/reader by corp",
    "old-sso": f"123456789012/writer by {START}/old",
    "role-of-sso": f"{ROLE}-3",
    "web": f"{ROLE}-4 signed-by-the-cluster",
}
#: In a process of its own: botocore looks for the home directory when it is imported.
PROGRAM = """
import json, sys
import boto3
from lakehand.errors import LakehandError
from lakehand.storage import parse_location
from lakehand.storage.connection_options import connect_options

def lakehand_keys(profile):
    options = {"profile": profile} if profile else {}
    try:
        found = connect_options(parse_location("s3://lake/t"), options).as_options()
    except LakehandError as error:
        return [error.code, error.hint]
    return [found["access_key_id"], found["secret_access_key"], found.get("session_token")]

def boto3_keys(profile):
    try:
        keys = boto3.Session(profile_name=profile).get_credentials().get_frozen_credentials()
    except Exception as error:
        return [type(error).__name__]
    return [keys.access_key, keys.secret_key, keys.token]

profiles = json.loads(sys.argv[1])
print(json.dumps([[lakehand_keys(profile), boto3_keys(profile)] for profile in profiles]))
"""


@pytest.fixture
def environment(tmp_path):
    """Files as the AWS command line leaves them after `aws sso login`, and servers that answer."""
    cache = tmp_path / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    (tmp_path / ".aws" / "config").write_text(CONFIG.replace("HOME", str(tmp_path)))
    (tmp_path / "token").write_text("signed-by-the-cluster")
    for name in ("corp", f"{START}/old"):
        log_in(tmp_path, name, lifetime=timedelta(hours=1))
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with run_aws_identity() as identity:
        endpoints = {f"AWS_ENDPOINT_URL_{name}": identity.endpoint for name in ("STS", "SSO")}
        region = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1"}
        yield {**ours, **endpoints, **region, "HOME": str(tmp_path)}


def log_in(home, name, *, lifetime):
    expiry = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
    login = {"startUrl": START, "region": "eu-west-1", "accessToken": name, "expiresAt": expiry}
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    (home / ".aws" / "sso" / "cache" / f"{digest}.json").write_text(json.dumps(login))


def keys_of(environment, *profiles):
    """Return the keys that lakehand finds, and those of boto3, for each profile."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(profiles)]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert not done.returncode, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_profile_has_the_keys_that_boto3_finds(environment):
    for profile, (found, expected) in zip(KEYS, keys_of(environment, *KEYS), strict=True):
        assert expected[0] == KEYS[profile]
        assert found == expected


def test_the_variable_names_the_profile_as_for_boto3(environment):
    ((found, expected),) = keys_of({**environment, "AWS_PROFILE": "role-of-sso"}, None)
    assert found == expected == [f"{ROLE}-3", f"secret of {ROLE}-3", f"token of {ROLE}-3"]


def test_a_login_that_is_over_says_how_to_log_in(environment, tmp_path):
    log_in(tmp_path, "corp", lifetime=timedelta(hours=-1))
    ((found, expected),) = keys_of(environment, "sso")
    assert "aws sso login" in found[1]
    assert len(expected) == 1, "boto3 finds none either"
