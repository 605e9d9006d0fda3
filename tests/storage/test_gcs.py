"""What is sent to Google Cloud Storage, and what its answers mean. No server of it runs here."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from lakehand.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreUnreachableError,
)
from lakehand.storage import RetryPolicy, Store, open_store
from support.odd_s3 import OddServer, run_odd_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server


@pytest.fixture
def odd() -> Iterator[OddServer]:
    with run_odd_server() as server:
        yield server


@pytest.fixture
def store(odd) -> Store:
    # The place in a key file where the client looks for another server than Google's.
    key = {"gcs_base_url": odd.options["endpoint"], "disable_oauth": True}
    key |= {"client_email": "", "private_key": "", "private_key_id": ""}
    options = {"service_account_key": json.dumps(key), "allow_http": "true"}
    store = open_store("gs://lake/t", options)
    store._retry = RetryPolicy(base_delay=timedelta(milliseconds=1))
    return store


def test_put_if_absent_asks_for_generation_zero(odd, store):
    store.put_if_absent("0.json", b"{}")

    [(method, path, headers)] = odd.requests
    assert (method, unquote(path)) == ("PUT", "/lake/t/0.json")
    assert headers["x-goog-if-generation-match"] == "0"


def test_a_plain_put_has_no_condition(odd, store):
    store.put("x", b"1")

    assert "x-goog-if-generation-match" not in odd.requests[0][2]
    assert store.get("x") == b"1"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(412, ObjectExistsError), (403, AccessDeniedError), (429, StoreUnreachableError),
     (503, StoreUnreachableError), (400, StorageError)],
)  # fmt: skip
def test_each_answer_to_put_if_absent_has_its_error_and_is_final(odd, store, status, kind):
    odd.answer = lambda method, path: (status, "<Error><Code>Whatever</Code></Error>")

    with pytest.raises(kind) as raised:
        store.put_if_absent("x", b"")
    assert type(raised.value) is kind
    assert odd.count("PUT") == 1


def test_a_put_if_absent_whose_answer_is_lost_is_not_repeated(odd, store):
    odd.loses_answers = True

    with pytest.raises(StoreUnreachableError):
        store.put_if_absent("0.json", b"{}")
    assert odd.count("PUT") == 1


def test_a_busy_store_is_asked_again(odd, store):
    busy = iter([(503, "")] * 2)
    odd.answer = lambda method, path: next(busy, None)

    with pytest.raises(ObjectNotFoundError):
        store.get("x")
    assert odd.count("GET") == 3
