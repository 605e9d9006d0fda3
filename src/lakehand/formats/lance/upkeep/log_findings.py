"""Whether the versions of a dataset can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.errors import LakehandError
from lakehand.formats.lance.connect import load_lance, open_dataset, said
from lakehand.formats.lance.log.manifests import listed_versions
from lakehand.model.verification import Finding, LogCheck

if TYPE_CHECKING:
    from lakehand.storage import Store

__all__ = ["check_log"]


def check_log(store: Store) -> LogCheck:
    """Open every version that is there, the newest first."""
    load_lance()
    versions = listed_versions(store)
    findings = {version: _unreadable(store, version) for version in versions}
    readable = [version for version in versions if findings[version] is None]
    return LogCheck(
        version=versions[0] if versions else None,
        readable_version=readable[0] if readable else None,
        commits=len(versions),
        checkpoints=0,
        findings=tuple(finding for finding in findings.values() if finding is not None),
    )


def _unreadable(store: Store, version: int) -> Finding | None:
    try:
        open_dataset(store, version)
    except LakehandError as error:
        return Finding(
            name="corrupt_commit",
            version=version,
            message=f"version {version} cannot be read: {said(error, store)}",
            hint="bring its manifest back from a backup, or restore an earlier version",
        )
    return None
