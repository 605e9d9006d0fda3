from __future__ import annotations

import pytest

from lakehand.errors import StorageError, ValidationError
from lakehand.storage import parse_location
from lakehand.storage.connection_options import Connection, Options, connect_options
from lakehand.storage.error_translation import translated
from lakehand.storage.remote import is_trusted

S3 = parse_location("s3://lake/events")
R2 = parse_location("r2://lake/events")


@pytest.mark.parametrize(
    "name", ["access_key_id", "aws_access_key_id", "AWS_ACCESS_KEY_ID", "access_key"]
)
def test_options_are_known_by_their_usual_spellings(name):
    connection = connect_options(S3, {name: "A"}, environment={})

    assert connection.config == {"access_key_id": "A"}


def test_options_win_over_the_url_and_the_url_over_the_environment():
    location = parse_location("s3://lake.s3.eu-west-1.amazonaws.com/e")
    environment = {"AWS_REGION": "us-east-2"}

    assert connect_options(S3, None, environment=environment).config["region"] == "us-east-2"
    assert connect_options(location, None, environment=environment).config["region"] == "eu-west-1"
    options = {"region": "us-west-1"}
    assert connect_options(location, options, environment={}).config["region"] == "us-west-1"


def test_keys_of_the_caller_are_not_mixed_with_the_environment():
    environment = {"AWS_SESSION_TOKEN": "of another pair", "AWS_SECRET_ACCESS_KEY": "x"}
    options = {"access_key_id": "A", "secret_access_key": "S"}

    assert connect_options(S3, options, environment=environment).config == options


def test_credentials_of_the_environment_are_taken_along():
    environment = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S", "HOME": "/root"}

    config = connect_options(S3, None, environment=environment).config
    assert config == {"access_key_id": "A", "secret_access_key": "S"}


@pytest.mark.parametrize(
    ("options", "endpoint"),
    [
        ({"account_id": "abc"}, "https://abc.r2.cloudflarestorage.com"),
        (
            {"account_id": "abc", "jurisdiction": "eu"},
            "https://abc.eu.r2.cloudflarestorage.com",
        ),
        ({"endpoint": "https://r2.example"}, "https://r2.example"),
    ],
)
def test_r2_is_reached_by_account_and_jurisdiction(options, endpoint):
    connection = connect_options(R2, options, environment={})

    assert connection.config == {"endpoint": endpoint, "region": "auto"}


def test_r2_is_reached_by_the_account_in_its_url():
    location = parse_location("r2://abc.eu.r2.cloudflarestorage.com/lake/e")

    config = connect_options(location, None, environment={}).config
    assert config["endpoint"] == "https://abc.eu.r2.cloudflarestorage.com"


def test_r2_keys_are_not_mixed_with_those_of_amazon():
    environment = {
        "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S", "AWS_SESSION_TOKEN": "T",
        "R2_ACCESS_KEY_ID": "RA", "R2_SECRET_ACCESS_KEY": "RS", "R2_ACCOUNT_ID": "abc",
    }  # fmt: skip

    config = connect_options(R2, None, environment=environment).config
    assert (config["access_key_id"], config["secret_access_key"]) == ("RA", "RS")
    assert "session_token" not in config


def test_r2_without_an_account_says_how_to_give_one():
    with pytest.raises(ValidationError) as raised:
        connect_options(R2, None, environment={})

    assert "R2_ACCOUNT_ID" in raised.value.hint


def test_azure_and_google_options_keep_their_names():
    azure = parse_location("abfss://c@acct.dfs.core.windows.net/t")
    google = parse_location("gs://lake/t")

    options = {"azure_storage_account_key": "K"}
    config = connect_options(azure, options, environment={}).config
    assert config == {"account_name": "acct", "account_key": "K"}
    environment = {"GOOGLE_SERVICE_ACCOUNT": "/key.json"}
    config = connect_options(google, None, environment=environment).config
    assert config == {"service_account": "/key.json"}


def test_client_options_are_told_from_those_of_the_store():
    options = {"allow_http": "true", "timeout": "1s", "endpoint": "http://127.0.0.1:1"}
    connection = connect_options(S3, options, environment={})

    assert connection.config == {"endpoint": "http://127.0.0.1:1"}
    assert connection.client["allow_http"] is True
    assert connection.client["timeout"] == "1s"
    assert connection.client["connect_timeout"] == "5s"


@pytest.mark.parametrize(
    "endpoint", ["http://minio:9000", "minio:9000", "ftp://x", "https://key:hush-hush@host"]
)
def test_an_endpoint_that_cannot_be_right_is_refused(endpoint):
    with pytest.raises(ValidationError) as raised:
        connect_options(S3, {"endpoint": endpoint}, environment={})

    assert raised.value.field == "endpoint"
    assert "hush-hush" not in str(raised.value) + str(raised.value.to_json())


def test_a_connection_shows_names_and_no_values():
    connection = Connection(config=Options(secret_access_key="hush-hush"))

    assert repr(connection) == "Connection(config=Options(secret_access_key))"


@pytest.mark.parametrize(
    ("config", "trusted"),
    [
        ({}, True),
        ({"endpoint": "https://s3.eu-west-1.amazonaws.com"}, True),
        ({"endpoint": "https://abc.r2.cloudflarestorage.com"}, True),
        ({"endpoint": "http://minio:9000"}, False),
        ({"endpoint": "http://minio:9000", "conditional_put": "etag"}, True),
        ({"endpoint": "https://evilamazonaws.com"}, False),
    ],
)
def test_only_known_stores_are_trusted_with_put_if_absent(config, trusted):
    assert is_trusted(Connection(config=Options(config))) is trusted


def test_the_newline_at_the_end_of_a_secret_is_no_part_of_it():
    environment = {"AWS_REGION": "eu-west-1\n", "AWS_SESSION_TOKEN": "\n"}
    connection = connect_options(S3, {"secret_access_key": " S\r\n"}, environment=environment)

    assert connection.config == {"secret_access_key": "S", "region": "eu-west-1"}


@pytest.mark.parametrize("value", ["hush\nhush", "hush\0", "hush\x7f", "hush\x1bhush"])
@pytest.mark.parametrize("name", ["secret_access_key", "session_token", "region", "user_agent"])
def test_a_control_character_is_refused_without_the_value(name, value):
    with pytest.raises(ValidationError) as error:
        connect_options(S3, {name: value}, environment={})

    assert name in str(error.value)
    assert "hush" not in f"{error.value} {error.value.to_json()}"


def test_an_empty_option_is_refused_but_for_a_token_that_many_keys_lack():
    assert connect_options(S3, {"session_token": ""}, environment={}).config == {}
    with pytest.raises(ValidationError, match="access_key_id is empty"):
        connect_options(S3, {"access_key_id": " \n"}, environment={})


def test_certificates_and_json_keep_their_lines():
    key = '{\n  "client_email": "a@b"\n}'
    found = connect_options(
        parse_location("gs://lake/t"), {"service_account_key": key}, environment={}
    )
    assert found.config == {"service_account_key": key}


@pytest.mark.parametrize("port", ["https://h:99999", "https://[::1", "https://a b", "https://h:x"])
def test_an_endpoint_that_no_client_can_reach_is_refused(port):
    with pytest.raises(ValidationError, match="not a URL such as"):
        connect_options(S3, {"endpoint": port}, environment={})


@pytest.mark.parametrize("account", ["a b", "a/b", "a@b"])
def test_an_account_that_makes_no_host_is_refused(account):
    with pytest.raises(ValidationError, match="letters, digits and hyphens"):
        connect_options(R2, {"account_id": account}, environment={})


@pytest.mark.parametrize("uri", ["s3://bu cket/t", "s3://bucket\n/t", "gs://b\x01/t", "az://b\r/t"])
def test_a_bucket_whose_name_no_request_can_hold_is_refused(uri):
    with pytest.raises(ValidationError, match="space or a control character"):
        parse_location(uri)


class PanicException(BaseException):
    pass


def test_a_client_that_breaks_down_is_an_error_of_the_store():
    with pytest.raises(StorageError, match="panicked"), translated("get", "s3://lake/x"):
        raise PanicException("hush-hush")
    with pytest.raises(KeyboardInterrupt), translated("get", "s3://lake/x"):
        raise KeyboardInterrupt
