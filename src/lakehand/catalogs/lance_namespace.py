"""Lance namespaces: a directory of Lance tables, or a server with the REST interface of Lance."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakehand.catalogs.catalog_contract import Access, CatalogTable
from lakehand.errors import AccessDeniedError, CatalogError, ConfigError, NotInstalledError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT, URI = "LANCE_NAMESPACE_ROOT", "LANCE_NAMESPACE_URI"


class LanceNamespaceCatalog:
    """Tables of a namespace, by the names of inner namespaces and their own."""

    name = "lance"
    levels = None

    def __init__(self, namespace: Any, place: str) -> None:
        self._namespace = namespace
        self._place = place

    def find(self, names: tuple[str, ...]) -> CatalogTable | None:
        found = self._describe(names)
        return None if found is None else self._entry(names, found)

    def tables(self) -> Iterator[CatalogTable]:
        yield from self._below(())

    def access(self, table: CatalogTable) -> Access:
        """Return the options that the namespace hands out for a table."""
        found = self._describe(table.names)
        return Access(options=dict((found.storage_options if found else None) or {}))

    def _describe(self, names: tuple[str, ...]) -> Any | None:
        from lance_namespace import DescribeTableRequest
        from lance_namespace.errors import NamespaceNotFoundError, TableNotFoundError

        with self._explained():
            try:
                return self._namespace.describe_table(DescribeTableRequest(id=list(names)))
            except (NamespaceNotFoundError, TableNotFoundError):
                return None

    def _below(self, names: tuple[str, ...]) -> Iterator[CatalogTable]:
        from lance_namespace import ListNamespacesRequest, ListTablesRequest

        for name in self._pages("list_tables", ListTablesRequest, names, "tables"):
            found = self._describe((*names, name))
            if found is not None:
                yield self._entry((*names, name), found)
        for name in self._pages("list_namespaces", ListNamespacesRequest, names, "namespaces"):
            yield from self._below((*names, name))

    def _pages(
        self, method: str, request: Any, names: tuple[str, ...], members: str
    ) -> Iterator[str]:
        token: str | None = None
        while True:
            with self._explained():
                asked = request(id=list(names), page_token=token)
                answer = getattr(self._namespace, method)(asked)
            yield from getattr(answer, members)
            token = answer.page_token
            if not token:
                return

    def _entry(self, names: tuple[str, ...], found: Any) -> CatalogTable:
        return CatalogTable(names=names, format="lance", is_view=False, location=found.location)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from lance_namespace import errors

        try:
            yield
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise AccessDeniedError(
                f"the namespace at {self._place} refused the request: {error}", operation="catalog"
            ) from None
        except (errors.TableNotFoundError, errors.NamespaceNotFoundError):
            raise
        except (errors.LanceNamespaceError, OSError, RuntimeError) as error:
            # Messages of the client may hold whole requests.
            raise CatalogError(
                f"the namespace at {self._place} cannot be read: {type(error).__name__}",
                hint=f"check {ROOT} or {URI}, and the credentials of the store",
            ) from None


def open_lance() -> LanceNamespaceCatalog:
    """Connect to the directory of LANCE_NAMESPACE_ROOT or the server of LANCE_NAMESPACE_URI."""
    root, uri = os.environ.get(ROOT), os.environ.get(URI)
    if bool(root) == bool(uri):
        raise ConfigError(
            "the Lance namespace is not set" if not root else "two Lance namespaces are set",
            field=ROOT,
            hint=f"set {ROOT} to a directory or URL, or {URI} to the address of a server",
        )
    try:
        import lance.namespace as library
    except ImportError as error:
        message = "Lance namespaces need pylance, which is not installed"
        raise NotInstalledError(message, hint='pip install "lakehand[lance]"') from error
    opened: Any = library
    if root:
        return LanceNamespaceCatalog(opened.DirectoryNamespace(root=root), root)
    return LanceNamespaceCatalog(opened.RestNamespace(uri=uri), uri or "")
