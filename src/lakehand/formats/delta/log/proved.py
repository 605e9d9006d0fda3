"""A commit that carries a proof, as the log has it: what it replaced, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.errors import ObjectNotFoundError, VersionNotFoundError
from lakehand.formats.delta.log.discovery import read_commit
from lakehand.formats.delta.protocol.members import load_json
from lakehand.formats.delta.protocol.paths import decode_path
from lakehand.model.work import DataFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.formats.delta.protocol.actions import Commit
    from lakehand.storage import Store

__all__ = ["files_of", "proof_of", "proved_commit"]


def proved_commit(store: Store, version: int) -> Commit:
    """Return the commit of a version; VersionNotFoundError if it is not in the log."""
    try:
        return read_commit(store, version)
    except ObjectNotFoundError as error:
        raise VersionNotFoundError(
            f"the commit of version {version} of {store.url} is not, or no longer, in the log",
            table=store.url,
            version=version,
            hint="`lakehand history` lists the commits that are there",
        ) from error


def proof_of(commit: Commit) -> Mapping[str, Any] | None:
    """Return the proof that lakehand stored in a commit; None if there is none."""
    own = (commit.commit_info or {}).get("lakehand")
    proof = own.get("proof") if isinstance(own, dict) else None
    return proof if isinstance(proof, dict) else None


def files_of(actions: tuple[dict[str, Any], ...]) -> tuple[DataFile, ...]:
    """Return adds or removes as files that can be read: a remove of ours says all that is needed.

    That is: where the file is, its partition, which rows were deleted, and the ids of the others.
    """
    return tuple(
        DataFile(
            path=decode_path(action["path"]),
            bytes=int(action.get("size") or 0),
            rows=_row_count(action.get("stats")),
            deleted_rows=int((action.get("deletionVector") or {}).get("cardinality", 0)),
            native={"add": {"partitionValues": {}, **action}},
        )
        for action in actions
    )


def _row_count(stats: str | None) -> int | None:
    try:
        count = load_json(stats or "{}").get("numRecords")
    except (ValueError, AttributeError):
        return None
    return count if isinstance(count, int) else None
