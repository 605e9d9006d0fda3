"""A version that takes the content of an earlier one, committed by Lance."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakehand.errors import CommitUnknownError, RefusedError
from lakehand.formats.lance.connect import load_lance, open_dataset, said

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["put_restored", "undo"]

#: Lance says so before it writes anything.
_REFUSED = re.compile(r"Invalid user input")


def put_restored(store: Store, dataset: Any, wanted: int) -> int:
    """Let Lance make a version with the content of `wanted`; return its number.

    Lance lets it pass over whatever landed since `dataset`. RefusedError if it does not write such
    a version, as one of the first file format with dictionaries: nothing was committed then.
    """
    lance = load_lance()
    operation = lance.LanceOperation.Restore(wanted)
    try:
        restored = lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)
    except OSError as error:
        if _REFUSED.search(str(error)):
            raise RefusedError(
                f"version {wanted} of {store.url} is not restored, because Lance cannot write it"
                f" again: {said(error, store)}",
                table=store.url,
                operation="restore",
                version=wanted,
                hint="nothing was changed; read that version, and write its rows into a new table",
            ) from None
        raise CommitUnknownError(
            f"nobody can say whether version {wanted} of {store.url} was restored:"
            f" {said(error, store)}",
            table=store.url,
            hint="look at the history before you restore again",
        ) from error
    return int(restored.version)


def undo(store: Store, version: int) -> None:
    """Put the content in force again that was before `version`, which should not have landed.

    CommitUnknownError if others have built upon it already.
    """
    newest = open_dataset(store)
    try:
        if newest.version == version and put_restored(store, newest, version - 1) == version + 1:
            return
    except RefusedError as error:
        raise CommitUnknownError(
            f"version {version} of {store.url} was committed and does not fit the one before it:"
            f" {error.message}",
            table=store.url,
            hint=f"compare it with version {version - 1}",
        ) from error
    raise CommitUnknownError(
        f"version {version} of {store.url} was committed and does not fit the one before it, and"
        " others have committed since",
        table=store.url,
        hint=f"compare it with version {version - 1}, and restore that one if need be",
    )
