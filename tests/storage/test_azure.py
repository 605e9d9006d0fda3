"""What only Azure does: its credentials, its names, its errors."""

from __future__ import annotations

import base64
import pickle
from datetime import timedelta

import pytest

from lakehand.errors import AccessDeniedError, StorageError, UnsafePathError
from lakehand.storage import open_store
from support.azure_server import ACCOUNT, ACCOUNT_KEY

pytestmark = pytest.mark.server


@pytest.fixture
def uri(azure_server):
    return azure_server.new_uri()


def test_a_shared_access_signature_is_enough(azure_server, uri):
    store = open_store(uri, azure_server.sas_options())
    store.put_if_absent("log/0", b"first")
    with store.open_writer("big") as writer:
        writer.write(bytes(9 * 2**20))

    assert [info.key for info in store.list()] == ["big", "log/0"]
    assert store.delete(["big", "log/0"]) == []


def test_a_signature_that_is_over_is_refused_and_not_shown(azure_server, uri):
    options = azure_server.sas_options(valid_for=timedelta(hours=-1))
    store = open_store(uri, options)

    with pytest.raises(AccessDeniedError) as raised:
        store.put("x", b"")
    assert raised.value.status == 403
    assert options["sas_key"] not in f"{raised.value!r} {store!r} {vars(store)}"
    assert [type(failure.error) for failure in store.delete(["x"])] == [AccessDeniedError]


def test_a_wrong_account_key_is_refused(azure_server, uri):
    wrong = base64.b64encode(b"not the key of this account").decode()

    with pytest.raises(AccessDeniedError, match="403"):
        open_store(uri, {**azure_server.options, "account_key": wrong}).get("x")


def test_the_key_comes_from_the_environment_under_the_names_of_azure(
    azure_server, uri, monkeypatch
):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", ACCOUNT_KEY)
    store = open_store(uri, {"endpoint": azure_server.endpoint, "allow_http": "true"})
    store.put("x", b"1")

    monkeypatch.undo()
    assert pickle.loads(pickle.dumps(store)).get("x") == b"1"


@pytest.mark.parametrize("scheme", ["abfss", "wasbs"])
def test_both_services_name_the_same_objects(azure_server, uri, scheme):
    open_store(uri, azure_server.options).put("x", b"1")
    service = {"abfss": "dfs", "wasbs": "blob"}[scheme]
    path = uri.removeprefix("az://lake/")

    url = f"{scheme}://lake@{ACCOUNT}.{service}.core.windows.net/{path}"

    assert open_store(url, azure_server.options).get("x") == b"1"


def test_a_missing_container_is_an_error_that_names_it(azure_server):
    with pytest.raises(StorageError, match="az://no-such-container/t"):
        open_store("az://no-such-container/t", azure_server.options).put("x", b"")


def test_a_key_with_a_backslash_is_refused(azure_server, uri):
    store = open_store(uri, azure_server.options)

    for act in (store.get, store.head, lambda key: store.put(key, b""), store.open_writer):
        with pytest.raises(UnsafePathError, match="backslash"):
            act("back\\slash")
    assert list(store.list()) == []
