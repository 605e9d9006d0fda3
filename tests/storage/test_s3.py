"""What only object stores do: credentials, endpoints, lost answers, uploads in parts."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import socket
import subprocess
import sys
import time
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lakehand.errors import (
    AccessDeniedError,
    ConditionalPutError,
    ObjectExistsError,
    StorageError,
    StoreQuotaError,
    StoreUnreachableError,
    UnsafePathError,
    ValidationError,
)
from lakehand.storage import RetryPolicy, Store, open_store
from support.odd_s3 import OddServer, run_odd_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.s3_server import S3Server

pytestmark = pytest.mark.server
SECRET = "hush-hush-secret-value"
TOKEN = "hush-hush-session-token"


@pytest.fixture
def uri(s3_server: S3Server) -> str:
    return s3_server.new_uri()


@pytest.fixture
def odd() -> Iterator[OddServer]:
    with run_odd_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_ambient_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def open_impatient(uri: str, options: dict[str, str]) -> Store:
    store = open_store(uri, options)
    store._retry = RetryPolicy(base_delay=timedelta(milliseconds=1))
    return store


def test_wrong_credentials_are_an_access_error(s3_server, uri):
    store = open_store(uri, {**s3_server.options, "secret_access_key": SECRET})

    for act in (lambda: store.get("x"), lambda: list(store.list()), lambda: store.put("x", b"")):
        with pytest.raises(AccessDeniedError) as raised:
            act()
        assert (raised.value.status, raised.value.store_code) == (403, "SignatureDoesNotMatch")
    with pytest.raises(AccessDeniedError):
        store.put_if_absent("x", b"")


def test_each_object_that_may_not_be_deleted_is_reported(s3_server, uri):
    store = open_store(uri, {**s3_server.options, "secret_access_key": SECRET})

    failures = store.delete(["a", "b"])

    assert [failure.key for failure in failures] == ["a", "b"]
    assert all(isinstance(failure.error, AccessDeniedError) for failure in failures)


def test_a_store_that_stops_answering_leaves_everything_undeleted(odd):
    odd.answer = lambda method, path: (503, "")

    failures = open_impatient("s3://lake/t", odd.options).delete(["a", "b"])

    assert [failure.key for failure in failures] == ["a", "b"]
    assert all(isinstance(failure.error, StoreUnreachableError) for failure in failures)


def test_a_store_told_to_do_without_conditions_is_refused_for_commits(s3_server, uri):
    store = open_store(uri, {**s3_server.options, "conditional_put": "disabled"})

    with pytest.raises(ConditionalPutError):
        store.put_if_absent("x", b"")
    assert not store.exists("x")


def test_a_missing_bucket_is_named(s3_server):
    store = open_store("s3://no-such-bucket/t", s3_server.options)

    with pytest.raises(StorageError, match="NoSuchBucket") as raised:
        store.get("x")
    assert "bucket" in raised.value.hint


def test_no_credentials_at_all_are_an_access_error(odd):
    options = {"metadata_endpoint": odd.options["endpoint"], "allow_http": "true"}

    with pytest.raises(AccessDeniedError, match="no credentials"):
        open_store("s3://lake/t", {**options, "region": "us-east-1"}).get("x")
    assert odd.count("GET") + odd.count("PUT") >= 1


def refused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def test_a_dead_endpoint_fails_soon(s3_server, uri):
    endpoint = f"http://127.0.0.1:{refused_port()}"
    store = open_store(uri, {**s3_server.options, "endpoint": endpoint})
    started = time.monotonic()

    with pytest.raises(StoreUnreachableError, match="refused") as raised:
        store.get("x")
    assert time.monotonic() - started < 30
    assert raised.value.retryable
    assert raised.value.retry_metrics.attempts == 4


def test_an_unknown_host_fails_soon(s3_server, uri):
    options = {**s3_server.options, "endpoint": "https://no-such-host.invalid"}

    with pytest.raises(StorageError):
        open_impatient(uri, options).get("x")


def test_an_endpoint_that_never_answers_fails_in_bounded_time(s3_server, uri):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {**s3_server.options, "endpoint": endpoint, "read_timeout": "100ms"}
        with pytest.raises(StoreUnreachableError, match="the request timed out"):
            open_impatient(uri, options).get("x")


@pytest.mark.parametrize(
    ("act", "attempts"),
    [
        (lambda store: store.get("x"), 4),
        (lambda store: store.put("x", b""), 4),
        (lambda store: list(store.list()), 4),
        (lambda store: store.put_if_absent("x", b""), 1),
    ],
)
def test_a_busy_store_is_asked_again_except_to_put_if_absent(odd, act, attempts):
    odd.answer = lambda method, path: (503, "<Error><Code>SlowDown</Code></Error>")

    with pytest.raises(StoreUnreachableError, match="503 SlowDown"):
        act(open_impatient("s3://lake/t", odd.options))
    assert len(odd.requests) == attempts


def test_a_put_if_absent_whose_answer_is_lost_is_unknown_and_not_repeated(odd):
    odd.loses_answers = True

    with pytest.raises(StoreUnreachableError):
        open_impatient("s3://lake/t", odd.options).put_if_absent("0.json", b"{}")
    assert odd.objects == {"/lake/t/0.json": b"{}"}
    assert odd.count("PUT") == 1


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (412, "PreconditionFailed", ObjectExistsError),
        (409, "ConditionalRequestConflict", StoreUnreachableError),
        (409, "BlobAlreadyExists", ObjectExistsError),
        (409, "ObjectParentIsFile", StorageError),
        (501, "NotImplemented", ConditionalPutError),
        (507, "StorageFull", StoreQuotaError),
        (400, "ExpiredToken", AccessDeniedError),
        (400, "InvalidArgument", StorageError),
        (301, "PermanentRedirect", StorageError),
    ],
)
def test_each_answer_to_put_if_absent_has_its_error(odd, status, code, kind):
    odd.answer = lambda method, path: (status, f"<Error><Code>{code}</Code></Error>")

    with pytest.raises(kind) as raised:
        open_impatient("s3://lake/t", odd.options).put_if_absent("x", b"")
    assert type(raised.value) is kind
    assert raised.value.path == "s3://lake/t/x"


def test_a_store_that_ignores_the_condition_is_refused_for_commits(odd):
    del odd.options["conditional_put"]
    store = open_store("s3://lake/t", odd.options)

    with pytest.raises(ConditionalPutError, match="overwrote"):
        store.put_if_absent("0.json", b"{}")
    assert "/lake/t/0.json" not in odd.objects


def test_a_store_that_does_not_answer_is_asked_again_whether_it_honours_the_condition(odd):
    del odd.options["conditional_put"]
    busy = iter([(503, "<Error><Code>SlowDown</Code></Error>")] * 2)
    odd.answer = lambda method, path: next(busy, None)

    with pytest.raises(ConditionalPutError, match="overwrote"):
        open_impatient("s3://lake/t", odd.options).put_if_absent("0.json", b"{}")


def test_a_store_that_honours_the_condition_is_tried_once(s3_server, uri):
    store = open_store(uri, s3_server.options)
    store.put_if_absent("0.json", b"{}")
    store.put_if_absent("1.json", b"{}")

    assert [info.key for info in store.list()] == ["0.json", "1.json"]


def test_session_tokens_of_the_environment_do_not_follow_given_keys(odd, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of another pair")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{refused_port()}")
    odd.objects["/lake/t/x"] = b"1"

    assert open_store("s3://lake/t", odd.options).get("x") == b"1"
    assert "x-amz-security-token" not in odd.requests[0][2]


def test_credentials_come_from_the_environment(s3_server, uri, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.options["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.options["secret_access_key"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    store = open_store(uri)
    store.put("x", b"1")

    monkeypatch.undo()
    twin = pickle.loads(pickle.dumps(store))
    assert twin.get("x") == b"1"
    sibling, key = twin.resolve(uri.rpartition("/")[0] + "/missing")
    assert not sibling.exists(key)


def test_a_pickled_store_works_in_another_process(s3_server, uri):
    store = open_store(uri, s3_server.options)
    store.put("x", b"over there")
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer).get('x').decode())"

    answer = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(store),
        stdout=subprocess.PIPE,
        check=True,
        timeout=200,
    )
    assert answer.stdout == b"over there\n"


def _head(store: Store, answers) -> None:
    try:
        store.head("x")
    except StorageError as error:
        answers.put(str(error))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the very thing that is tested
def test_a_forked_process_is_told_instead_of_waiting_for_ever(s3_server, uri):
    store = open_store(uri, s3_server.options)
    store.put("x", b"")
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_head, args=(store, answers), daemon=True)
    child.start()

    assert "spawn" in answers.get(timeout=60)
    child.join(timeout=60)


def test_an_aborted_upload_leaves_no_parts(s3_server, uri):
    parts = s3_server.directory / ".sgwtmp" / "multipart"
    before = set(parts.rglob("*"))  # of tests that may not abort
    writer = open_store(uri, s3_server.options).open_writer("big")
    writer.write(bytes(30 * 2**20))
    writer.abort()

    assert [path for path in set(parts.rglob("*")) - before if path.is_file()] == []


def test_an_upload_that_fails_midway_fails_the_writer(odd):
    odd.answer = lambda method, path: (403, "<Error><Code>AccessDenied</Code></Error>")
    writer = open_store("s3://lake/t", odd.options).open_writer("big")

    with pytest.raises(AccessDeniedError):  # noqa: PT012  the failure shows in one of them
        writer.write(bytes(40 * 2**20))
        writer.close()
    writer.abort()
    assert odd.objects == {}


def test_a_bucket_that_lists_in_no_order_is_sorted_here(s3_server):
    bucket = "lake--x-s3"
    (s3_server.directory.parent / bucket).mkdir(exist_ok=True)
    store = open_store(f"s3://{bucket}/t", s3_server.options)
    for name in ("b", "a/x", "a-b"):
        store.put(name, b"")

    assert [info.key for info in store.list()] == ["a-b", "a/x", "b"]
    assert [info.key for info in store.list(after="a-b")] == ["a/x", "b"]


def test_azure_and_google_stores_are_opened_with_their_options():
    azure = {"account_key": "aHVzaC1odXNo"}
    store = open_store("abfss://c@account.dfs.core.windows.net/t", azure)
    assert store.url == "abfss://c@account.dfs.core.windows.net/t"
    assert pickle.loads(pickle.dumps(store)).url == store.url

    google = {"skip_signature": "true"}
    assert open_store("gs://lake/t", google).resolve("gs://lake/x")[0].url == "gs://lake"


def test_a_key_with_control_characters_is_refused(s3_server, uri):
    with pytest.raises(UnsafePathError, match="put failed"):
        open_store(uri, s3_server.options).put("tab\there", b"")


def test_the_credentials_of_a_table_are_for_its_bucket_only(s3_server, uri):
    store = open_store(uri, s3_server.options)
    store.put("x", b"1")
    path = uri.removeprefix("s3://lake/")

    assert store.resolve(f"s3a://lake/{path}/x") == (store, "x")
    sibling, key = store.resolve(f"s3://lake/{path}-other/y")
    assert (sibling.url, key) == ("s3://lake", f"{path}-other/y")
    assert sibling.get(f"{path}/x") == b"1"
    stranger, key = store.resolve("s3://other-bucket/y")
    assert (stranger.url, key) == ("s3://other-bucket", "y")
    assert "secret_access_key" not in stranger.connection_options()
    assert store.resolve("s3://other-bucket/z")[0] is stranger


def test_a_table_in_a_bucket_cannot_name_files_of_this_machine(s3_server, uri):
    store = open_store(uri, s3_server.options)

    with pytest.raises(UnsafePathError, match="local file"):
        store.resolve("file:///etc/passwd")
    assert store.resolve("/etc/passwd")[0].url == "s3://lake"


@pytest.mark.parametrize("name", ["no_such_option", "acces_key_id"])
def test_an_unknown_option_is_refused_by_name(name):
    with pytest.raises(ValidationError, match=name) as raised:
        open_store("s3://lake/t", {name: SECRET})
    assert SECRET not in str(raised.value)


def test_half_a_pair_of_keys_is_refused():
    with pytest.raises(ValidationError, match="SecretAccessKey"):
        open_store("s3://lake/t", {"access_key_id": "key"})


def everything_shown(error: BaseException) -> str:
    shown = "".join(traceback.format_exception(error)) + repr(error)
    return shown + str(getattr(error, "to_json", dict)())


REQUESTS = [
    lambda store: store.get("x"),
    lambda store: store.get_range("x", start=0, length=1),
    lambda store: store.get_ranges("x", [(0, 1)]),
    lambda store: store.get_tail("x", 1),
    lambda store: store.put("x", b""),
    lambda store: store.put_if_absent("x", b""),
    lambda store: list(store.list()),
    lambda store: store.head("x"),
    lambda store: store.open_writer("x").close(),
]


@pytest.mark.parametrize("request_something", REQUESTS)
def test_secrets_are_shown_nowhere(s3_server, uri, odd, caplog, request_something):
    caplog.set_level(logging.DEBUG)
    odd.answer = lambda method, path: (400, f"<Error><Code>Odd</Code>{TOKEN}</Error>")
    shown = []
    for options in (s3_server.options, odd.options):
        store = open_impatient(
            uri, {**options, "secret_access_key": SECRET, "session_token": TOKEN}
        )
        shown += [repr(store), str(store), store.url, repr(vars(store)), repr(store._backend)]
        with pytest.raises(StorageError) as raised:
            request_something(store)
        shown.append(everything_shown(raised.value))

    text = "".join(shown) + caplog.text
    assert uri in text
    assert SECRET not in text
    assert TOKEN not in text
