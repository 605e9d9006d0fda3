"""Pins as tags: what Lance's own cleanup respects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import ValidationError
from lakehand.formats.lance.connect import open_dataset, said

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["drop_tag", "put_tag"]


def put_tag(store: Store, name: str, version: int) -> None:
    """Give a version a tag; ValidationError if the name is another version's, or can be none."""
    tags = open_dataset(store).tags
    if tags.list().get(name, {}).get("version") == version:
        return
    try:
        tags.create(name, version)
    except (ValueError, OSError) as error:
        raise ValidationError(
            f"version {version} of {store.url} cannot be tagged {name!r}: {said(error, store)}",
            field="name",
            value=name,
        ) from None


def drop_tag(store: Store, name: str) -> None:
    """Remove a tag, if it is there."""
    tags = open_dataset(store).tags
    if name in tags.list():
        tags.delete(name)
