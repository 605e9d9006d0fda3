"""What may not be done to a Lance table, and because of which of its features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import RefusedError
from lakehand.formats.lance.connect import open_dataset
from lakehand.formats.lance.log.manifests import has_detached_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakehand.formats.base import Operation
    from lakehand.formats.lance.log.state import LanceState
    from lakehand.storage import Store

__all__ = ["require"]


def require(store: Store, operation: Operation, state: LanceState) -> None:
    """Raise RefusedError, which names the feature, if `operation` is not safe on this table."""
    for feature, why in _obstacles(store, operation, state):
        raise RefusedError(
            f"{operation} is refused on {store.url}: {why}",
            table=store.url,
            operation=operation,
            feature=feature,
            hint="nothing was changed",
        )


def _obstacles(store: Store, operation: Operation, state: LanceState) -> Iterator[tuple[str, str]]:
    if operation not in ("rewrite", "vacuum"):
        return
    if state.has_other_bases:
        yield "base paths", "some of its files lie outside of its root, as in a shallow clone"
    if operation == "vacuum":
        if open_dataset(store).branches.list():
            yield "branches", "its branches need files that their own versions name"
        if has_detached_versions(store):
            yield "detached versions", "it has versions outside of its history"
