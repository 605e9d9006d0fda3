"""Requests of S3 that lakehand signs itself: as botocore signs them, or refused by name."""

from __future__ import annotations

import random
import ssl
import traceback
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

import obstore
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from lakehand.errors import StorageError
from lakehand.storage import crc64 as checksums
from lakehand.storage.clients import open_client
from lakehand.storage.connection_options import connect_options
from lakehand.storage.crc64 import combine, crc64, without_end, without_start
from lakehand.storage.location import parse_location
from lakehand.storage.objects import NotComposable
from lakehand.storage.retry import RetryPolicy
from lakehand.storage.s3_composer import S3Composer
from lakehand.storage.s3_requests import (
    Answer,
    Keys,
    Request,
    S3Requests,
    bucket_url,
    canonical_query,
    refused_by,
    signed_headers,
    why_not,
)

MOMENT = datetime(2026, 11, 18, 1, 2, 3, tzinfo=UTC)


@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize("name", ["t/a.parquet", "t/a b+c=ü%41/x~y.parquet", "t/é'(1)*!.parquet"])
def test_signatures_are_those_of_botocore(monkeypatch, name, token):
    keys = Keys(access_key_id="AKID", secret_access_key="hush", session_token=token)
    path = f"/lake/{quote(name, safe='/-_.~')}"
    query = {"partNumber": "12", "uploadId": "a+b/c=="}
    headers = {"host": "localhost:9", "x-amz-copy-source-range": "bytes=0-4"}
    ours = signed_headers(
        "PUT", path, query, headers, b"body", keys=keys, region="eu-central-1", at=MOMENT
    )

    request = AWSRequest(
        method="PUT",
        url=f"http://localhost:9{path}?{canonical_query(query)}",
        data=b"body",
        headers={"x-amz-copy-source-range": "bytes=0-4"},
    )
    request.context["payload_signing_enabled"] = True
    request.context["timestamp"] = "20261118T010203Z"
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda **_: MOMENT, raising=False)
    # botocore 1.40 asks the clock itself.
    clock = SimpleNamespace(datetime=SimpleNamespace(utcnow=lambda: MOMENT))
    monkeypatch.setattr("botocore.auth.datetime", clock, raising=False)
    S3SigV4Auth(Credentials("AKID", "hush", token), "s3", "eu-central-1").add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]


def connection(uri="s3://lake/t", **options):
    location = parse_location(uri)
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    return location, connect_options(location, {**keys, **options}, environment={})


def test_plain_connections_are_used():
    assert why_not(*connection()) is None
    assert why_not(*connection(endpoint="https://minio:9000", region="x")) is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"aws_server_side_encryption": "aws:kms"}, "server_side_encryption"),
        ({"proxy_url": "http://proxy:1"}, "proxy_url"),
        ({"allow_invalid_certificates": "true"}, "allow_invalid_certificates"),
        ({"unsigned_payload": "true"}, "unsigned_payload"),
    ],
)
def test_options_that_cannot_be_followed_are_named(options, reason):
    assert reason in why_not(*connection(**options))


def test_stores_and_keys_that_cannot_be_used_are_named():
    location = parse_location("s3://lake/t")
    without = connect_options(location, {"region": "x"}, environment={})
    assert "known to obstore only" in why_not(location, without)
    assert "Express" in why_not(*connection("s3://lake--eun1-az1--x-s3/t"))
    r2 = parse_location("r2://lake/t")
    options = {"access_key_id": "a", "secret_access_key": "b", "account_id": "c"}
    assert "r2://" in why_not(r2, connect_options(r2, options, environment={}))


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_not_passed_by(monkeypatch, variable):
    monkeypatch.setenv(variable, "http://proxy:1")
    assert "proxy" in why_not(*connection())
    monkeypatch.setenv("NO_PROXY", "amazonaws.com")
    assert why_not(*connection()) is None


@pytest.mark.parametrize("value", ["1m30s", "30 seconds"])
def test_a_duration_that_only_obstore_reads_is_a_reason_to_stream(value):
    with pytest.raises(NotComposable, match="read_timeout"):
        S3Requests(*connection(read_timeout=value))


@pytest.mark.parametrize("value", ["true", "True", "1", "yes", "y", "on"])
def test_requests_go_where_those_of_obstore_go(value):
    options = {"endpoint": "https://lake.example", "virtual_hosted_style_request": value}
    location, connected = connection(**options)
    client = open_client(location, connected, retry={})
    signed = urlsplit(obstore.sign(client, "GET", "t/x", timedelta(seconds=1)))
    assert f"{bucket_url(location, connected)}/t/x" == f"https://{signed.netloc}{signed.path}"


def requests_that_fail(monkeypatch, error):
    """Return requests over a connection that raises `error`."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("http.client.HTTPSConnection.request", fail)
    return S3Requests(*connection(), RetryPolicy(max_retries=0))


HEAD = Request(method="HEAD", name="t/x", operation="head")


def test_a_certificate_that_python_does_not_know_is_a_reason_to_stream(monkeypatch):
    """obstore has certificates of its own; those of this machine may be missing."""
    requests = requests_that_fail(monkeypatch, ssl.SSLCertVerificationError(1, "unable to get"))
    with pytest.raises(NotComposable, match="certificate"):
        requests.send(HEAD)


def test_a_header_that_cannot_be_sent_is_not_shown(monkeypatch):
    requests = requests_that_fail(monkeypatch, ValueError("Invalid header value b'hush'"))
    with pytest.raises(StorageError) as raised:
        requests.send(HEAD)
    assert "hush" not in "".join(traceback.format_exception(raised.value))


def test_keys_are_in_no_text():
    keys = Keys(access_key_id="AKID", secret_access_key="hush", session_token="t")
    assert "hush" not in repr(keys)
    assert "AKID" not in repr(keys)


@pytest.mark.parametrize("length", [0, 1, 9, 2047, 2048, 2049, 5000, 100_003])
def test_checksums_follow_from_each_other(length):
    data = random.Random(length).randbytes(length)
    plain = checksums._of_few(data, 0)
    assert crc64(data) == plain
    for cut in {0, length // 3, length}:
        first, rest = crc64(data[:cut]), crc64(data[cut:])
        assert crc64(data[cut:], first) == plain
        assert combine(first, rest, length - cut) == plain
        assert without_end(plain, rest, length - cut) == first
        assert without_start(plain, first, length - cut) == rest


class UploadsInPages:
    """Lists three uploads, one in a page; an aborted one stays listed for a while."""

    names = ("t/a", "t/b", "t/c")

    def __init__(self):
        self.aborted, self.asked = [], 0

    def send(self, request):
        if request.method == "DELETE":
            self.aborted.append(request.name)
            return Answer(headers={}, body=b"")
        self.asked += 1
        assert self.asked <= len(self.names), "a page is asked for again"
        name = next(name for name in self.names if name > request.query.get("key-marker", ""))
        upload = f"<Upload><Key>{name}</Key><UploadId>1</UploadId></Upload>"
        is_cut = str(name != self.names[-1]).lower()
        body = f"<IsTruncated>{is_cut}</IsTruncated>{upload}".encode()
        return Answer(headers={}, body=body)


def test_uploads_are_aborted_page_by_page():
    requests = UploadsInPages()
    assert S3Composer(requests, "t").abort_uploads("x") == 3
    assert requests.aborted == ["t/a", "t/b", "t/c"]


def test_the_answer_may_say_that_it_failed_after_its_status():
    answer = SimpleNamespace(status=200, body=b"<Error><Code>InternalError</Code></Error>")
    assert refused_by(answer.status, answer.body, "copy", "s3://lake/x").retryable
