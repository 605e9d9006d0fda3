"""Pins as tags: what Lance's own cleanup respects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import ValidationError
from lakehand.formats.lance.connect import open_dataset, said
from lakehand.formats.lance.retention.protected import tagged_versions

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["drop_tag", "put_tag"]


def put_tag(store: Store, name: str, version: int) -> None:
    """Give a version a tag; ValidationError if there is a tag of that name, or cannot be one."""
    try:
        open_dataset(store).tags.create(name, version)
    except (ValueError, OSError) as error:
        raise ValidationError(
            f"version {version} of {store.url} cannot be tagged {name!r}: {said(error, store)}",
            field="name",
            value=name,
        ) from None


def drop_tag(store: Store, name: str, version: int) -> None:
    """Remove a tag, if it is there and names this version."""
    tags = open_dataset(store).tags
    if tagged_versions(store).get(name) == version:
        tags.delete(name)
