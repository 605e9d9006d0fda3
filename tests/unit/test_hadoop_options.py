"""Options of Hadoop's file systems in the words of lakehand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lakehand.engine.hadoop_options import session_options
from lakehand.storage import parse_location
from lakehand.storage.connection_options import connect_options

KEYS = {"fs.s3a.access.key": "A", "fs.s3a.secret.key": "S"}
OURS = {"access_key_id": "A", "secret_access_key": "S"}
LOG_STORE_TABLE = "spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName"
LOCKING = {"locking_provider": "dynamodb"}
ABFSS = "abfss://c@acct.dfs.core.windows.net/t"


class HadoopConfiguration(dict):
    """What `sc.hadoopConfiguration` has, behind py4j."""


def session(conf, hadoop=None):
    """A session as far as it is read here; one of Spark Connect, if it has no configuration."""
    found = SimpleNamespace(conf=SimpleNamespace(getAll=conf))
    if hadoop is not None:
        found._jsc = SimpleNamespace(hadoopConfiguration=lambda: HadoopConfiguration(hadoop))
    return found


def options(uri, conf, hadoop=None):
    return session_options(session(conf, hadoop), parse_location(uri))


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({}, {}),
        (KEYS, OURS),
        ({f"spark.hadoop.{name}": value for name, value in KEYS.items()}, OURS),
        ({**KEYS, "fs.s3a.session.token": "T"}, {**OURS, "session_token": "T"}),
        # Half a pair would be completed with that of somebody else.
        ({"fs.s3a.access.key": "A"}, {}),
        ({**KEYS, "fs.s3a.bucket.lake.access.key": "B"}, {**OURS, "access_key_id": "B"}),
        ({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, {"region": "eu-west-1"}),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, {}),
        ({"fs.s3a.endpoint": "minio:9000"}, {"endpoint": "https://minio:9000"}),
        (
            {"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false"},
            {"endpoint": "http://minio:9000", "allow_http": "true"},
        ),
        (
            {"fs.s3a.endpoint": "https://minio", "fs.s3a.path.style.access": "true"},
            {"endpoint": "https://minio", "virtual_hosted_style_request": "false"},
        ),
        ({LOG_STORE_TABLE: "t"}, {}),
        (
            {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"},
            {**LOCKING, "locking_table": "delta_log", "locking_region": "us-east-1"},
        ),
        (
            {
                "spark.delta.logStore.s3.impl": "io.delta.storage.S3DynamoDBLogStore",
                LOG_STORE_TABLE: "t",
                "spark.hadoop.io.delta.storage.S3DynamoDBLogStore.ddb.region": "eu-west-1",
            },
            {**LOCKING, "locking_table": "t", "locking_region": "eu-west-1"},
        ),
    ],
)
def test_options_of_s3a(conf, expected):
    found = options("s3a://lake/t", conf)
    assert found == expected
    connect_options(parse_location("s3://lake/t"), found, environment={})


def test_the_session_wins_over_its_context_and_that_over_how_it_was_started():
    conf = {"spark.hadoop.fs.s3a.access.key": "start", "spark.hadoop.fs.s3a.secret.key": "start"}
    context = {"fs.s3a.access.key": "context"}
    assert options("s3://lake/t", conf, context) == {
        "access_key_id": "context",
        "secret_access_key": "start",
    }
    assert options("s3://lake/t", {**conf, **KEYS}, context) == OURS


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"fs.azure.account.key.acct.dfs.core.windows.net": "K"}, {"account_key": "K"}),
        ({"fs.azure.account.key.acct.blob.core.windows.net": "K"}, {"account_key": "K"}),
        ({"fs.azure.account.key.other.dfs.core.windows.net": "K"}, {}),
        ({"fs.azure.sas.fixed.token.acct.dfs.core.windows.net": "T"}, {"sas_key": "T"}),
        (
            {
                "fs.azure.account.oauth2.client.id.acct.dfs.core.windows.net": "I",
                "fs.azure.account.oauth2.client.secret": "S",
                "fs.azure.account.oauth2.client.endpoint": "https://login.example/ten/oauth2/token",
            },
            {"client_id": "I", "client_secret": "S", "tenant_id": "ten"},
        ),
    ],
)
def test_options_of_azure(conf, expected):
    assert options(ABFSS, conf) == expected


def test_options_of_google():
    conf = {"spark.hadoop.google.cloud.auth.service.account.json.keyfile": "/key.json"}
    assert options("gs://lake/t", conf) == {"service_account": "/key.json"}


def test_a_local_table_has_none():
    assert options("/data/t", KEYS) == {}
