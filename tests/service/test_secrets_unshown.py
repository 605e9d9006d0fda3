"""Values that hold secrets do not show them: in no representation, and in no error."""

from __future__ import annotations

import json
import traceback

import pytest

import lakehand
from lakehand.engine.session import open_session
from lakehand.errors import (
    ConfigError,
    EngineError,
    JobStoreError,
    LakehandError,
    ValidationError,
)
from lakehand.service.config import parse_config
from lakehand.service.job_main import JobSpec
from lakehand.service.store.database import open_database
from lakehand.settings import Settings
from lakehand.storage.location import parse_location

SECRET = "MARKER-of-a-secret"
STORE = f"postgresql+psycopg://lakehand:{SECRET}@127.0.0.1:1/lakehand"


def shown(error):
    """Return all that a log or a report may have of an error."""
    return "".join(traceback.format_exception(error)) + json.dumps(error.to_json()) + repr(error)


@pytest.mark.parametrize(
    "value",
    [
        JobSpec(url="s3://lake/t", verb="compact", storage_options={"secret_access_key": SECRET}),
        parse_config({"storage": {"lake": {"secret_access_key": SECRET}}}),
        parse_config({"service": {"store": STORE}}),
        parse_config({"hook": [{"events": ["*"], "url": f"https://example.com/{SECRET}"}]}),
    ],
    ids=["spec", "storage", "store", "hook"],
)
def test_a_representation_has_no_secret(value):
    assert SECRET not in repr(value)


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        (STORE, JobStoreError),
        (f"postgresql+psycopg://127.0.0.1:1/lakehand?user=u&password={SECRET}", JobStoreError),
        (STORE.replace("://", "//"), ValidationError),
        (STORE.replace(":1/", ":port/"), ValidationError),
        (STORE.replace("postgresql+psycopg", "mysql"), ValidationError),
    ],
    ids=["unreachable", "query", "malformed", "port", "kind"],
)
def test_an_error_of_the_job_store_has_no_password(store, kind):
    with pytest.raises(kind) as caught:
        open_database(store)
    assert SECRET not in shown(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        {"web": {"token": SECRET}},
        {"hook": [{"events": ["*"], "url": "https://example.com", "secret": SECRET}]},
        {"hook": [{"events": ["*"], "url": f"htps://example.com/{SECRET}"}]},
        {"policy": {"default": {"notify_token": SECRET}}},
        {"policy": {"default": {"remote": f"sc://spark/;token={SECRET}"}}},
        {"pool": [{"name": "default", "remote": f"sc://spark/;use_ssl=true;token={SECRET}"}]},
    ],
    ids=["token", "secret", "hook", "notify", "policy", "pool"],
)
def test_a_secret_in_the_configuration_is_refused_and_not_shown(document):
    with pytest.raises(ConfigError) as caught:
        parse_config(document)
    assert SECRET not in shown(caught.value)
    assert "env:VARIABLE" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"az://lake/t?sv=2024-11-04&sig={SECRET}",
        f"abfss://lake@account.dfs.core.windows.net/t?sig={SECRET}",
        f"s3://lake/t?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature={SECRET}",
        f"gs://lake/t?X-Goog-Signature={SECRET}",
        f"s3://key:{SECRET}@lake/t",
    ],
)
def test_a_url_that_is_signed_is_refused_and_not_shown(url):
    with pytest.raises(LakehandError, match="contains credentials") as caught:
        lakehand.open_table(url)
    assert SECRET not in shown(caught.value)


def test_the_url_of_a_spark_connect_server_may_be_a_secret(monkeypatch):
    monkeypatch.setenv("CONNECT_URL", f"sc://127.0.0.1:1/what;token={SECRET}")
    with pytest.raises(EngineError) as caught:
        open_session(Settings({"remote": "env:CONNECT_URL"}))
    assert "INVALID_CONNECT_URL" in str(caught.value)
    assert SECRET not in shown(caught.value)


def test_a_question_mark_alone_is_part_of_a_key():
    assert parse_location("s3://lake/what?design=1").path == "what?design=1"
