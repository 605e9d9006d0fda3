"""Tables of Lance namespaces: a directory, and a server that pylance itself brings."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance.namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DirectoryNamespace,
    RestAdapter,
)

import lakehand
from lakehand.catalogs import open_catalog
from lakehand.cli.main import run
from lakehand.errors import CatalogError, ConfigError, ValidationError

pytestmark = pytest.mark.server


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Return a directory namespace with one table at its top and one in an inner namespace."""
    namespace = DirectoryNamespace(root=str(tmp_path))
    namespace.create_namespace(CreateNamespaceRequest(id=["sales"]))
    declared = namespace.declare_table(DeclareTableRequest(id=["sales", "events"]))
    for place in (declared.location, tmp_path / "top.lance"):
        for number in range(3):
            lance.write_dataset(pa.table({"id": [number]}), place, mode="append")
    monkeypatch.setenv("LANCE_NAMESPACE_ROOT", str(tmp_path))
    monkeypatch.delenv("LANCE_NAMESPACE_URI", raising=False)
    return tmp_path


def test_a_table_of_a_directory_is_compacted_and_vacuumed_by_its_name(root):
    assert run(["compact", "lance:top", "--min-files", "2"]) == 0
    assert lakehand.open_table(root / "top.lance").snapshot().file_count == 1
    assert run(["vacuum", "lance:top", "--dry-run"]) == 0


def test_tables_of_inner_namespaces_are_found_and_listed(root):
    assert lakehand.open_table("lance:sales.events").snapshot().file_count == 3
    found = {table.name: table.is_maintainable for table in open_catalog("lance").tables()}
    assert found == {"top": True, "sales.events": True}


@pytest.mark.parametrize("name", ["nope", "sales.nope", "nowhere.nope"])
def test_an_unknown_name_is_named(root, name):
    with pytest.raises(CatalogError, match=f"no table lance:{name}"):
        lakehand.open_table(f"lance:{name}")


def test_names_and_addresses_that_cannot_be_used_are_refused(root, monkeypatch):
    with pytest.raises(ValidationError, match="not the name of a table"):
        lakehand.open_table("lance:a..b")
    monkeypatch.setenv("LANCE_NAMESPACE_URI", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="two Lance namespaces"):
        lakehand.open_table("lance:top")
    monkeypatch.delenv("LANCE_NAMESPACE_ROOT")
    with pytest.raises(CatalogError, match="cannot be read"):
        lakehand.open_table("lance:top")
    monkeypatch.delenv("LANCE_NAMESPACE_URI")
    with pytest.raises(ConfigError, match="not set"):
        lakehand.open_table("lance:top")


def test_a_server_is_asked_as_a_directory_is(root, monkeypatch):
    with RestAdapter("dir", {"root": str(root)}, port=0) as server:
        monkeypatch.delenv("LANCE_NAMESPACE_ROOT")
        monkeypatch.setenv("LANCE_NAMESPACE_URI", f"http://127.0.0.1:{server.port}")
        assert lakehand.open_table("lance:sales.events").snapshot().file_count == 3
        assert {table.name for table in open_catalog("lance").tables()} == {"top", "sales.events"}
        with pytest.raises(CatalogError, match="no table"):
            lakehand.open_table("lance:nope")
