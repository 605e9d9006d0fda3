"""What a commit of rows says of itself, in the properties of its transaction."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakehand.errors import StorageError, VersionNotFoundError
from lakehand.formats.lance.commits.records import (
    Record,
    parse_record,
    read_record,
    unreadable,
)
from lakehand.formats.lance.connect import open_dataset, said
from lakehand.formats.lance.log.manifests import listed_versions
from lakehand.model.documents import DocumentError, parse_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.storage import Store

__all__ = [
    "PROPERTY",
    "commit_record",
    "find_token",
    "is_conflict",
    "own_record",
    "properties_of",
    "read_properties",
]

PROPERTY = "lakehand"
_MARKS = "marks"
#: By these words Lance says that a commit did not happen because of another one; by the last ones,
#: that an index was built over some of the fragments that are merged.
_CONFLICT = re.compile(
    r"commit conflict|Incompatible transaction|Too many concurrent writers"
    r"|split of indexed and non-indexed data"
)


def is_conflict(failure: Exception) -> bool:
    """Say whether a commit is certain to have failed because of another one."""
    return _CONFLICT.search(str(failure)) is not None


def properties_of(found: Mapping[str, str] | None) -> dict[str, Any]:
    """Return what lakehand wrote into the properties of a transaction; empty if nothing."""
    text = (found or {}).get(PROPERTY)
    try:
        return parse_object(text) if text else {}
    except DocumentError as error:
        raise unreadable("what lakehand wrote into a transaction", error) from error


def read_properties(store: Store, version: int) -> dict[str, Any]:
    """Return what lakehand wrote into the commit of a version; empty if that is none of its."""
    try:
        transaction = open_dataset(store, version).read_transaction(version)
    except (TypeError, ValueError, VersionNotFoundError):
        # The library cannot build every operation that it writes; those of rows it can.
        return {}
    except OSError as error:
        message = f"version {version} of {store.url} does not say how it came about"
        raise StorageError(f"{message}: {said(error, store)}", path=store.url) from error
    return properties_of(transaction.transaction_properties if transaction else None)


def own_record(found: Mapping[str, Any]) -> Record | None:
    """Return what was written as a record of a commit."""
    if not found:
        return None
    try:
        return parse_record(found)
    except DocumentError as error:
        raise unreadable("what lakehand wrote into a transaction", error) from error


def commit_record(store: Store, version: int) -> Record | None:
    """Return what is known of a commit of lakehand; None if the version is none of its."""
    return read_record(store, version) or own_record(read_properties(store, version))


def find_token(store: Store, token: str, *, after: int) -> int | None:
    """Return the version above `after` whose properties have `token`."""
    for version in listed_versions(store):
        if version <= after:
            return None
        if read_properties(store, version).get("token") == token:
            return version
    return None
