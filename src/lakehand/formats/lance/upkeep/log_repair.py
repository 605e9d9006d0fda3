"""Manifests that nobody can read, set aside so that the newest readable version counts again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakehand.errors import CorruptLogError
from lakehand.formats.lance.connect import open_dataset
from lakehand.formats.lance.log.manifests import VERSION_HINT, manifest_keys
from lakehand.formats.lance.upkeep.log_findings import check_log
from lakehand.model.repair import LogRepair, Refusal, Repair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.storage import Store

__all__ = ["repair_log"]

_ASIDE = "_lakehand/aside"
_OLDER = "an older version that cannot be read harms no newer one"
_CONSENT = "what it brought would be lost: bring its manifest back, or accept the loss of data"
_HOPELESS = "no version can be read: bring a manifest back from a backup"


def repair_log(store: Store, *, accept_data_loss: bool, dry_run: bool) -> LogRepair:
    """Set manifests aside that are newer than all that can be read, if that loss is accepted."""
    check = check_log(store)
    newest = check.readable_version
    broken = [finding.version for finding in check.findings if finding.version is not None]
    lost = [version for version in broken if newest is not None and version > newest]
    if not (accept_data_loss and all(_is_corrupt(store, version) for version in lost)):
        lost = []
    refused = tuple(
        Refusal(name="corrupt_commit", version=version, reason=_reason(version, newest))
        for version in broken
        if version not in lost
    )
    if not lost:
        return LogRepair(repairs=(), refused=refused)
    keys = {version: manifest_keys(store)[version] for version in lost}
    repair = Repair(
        name="forget_versions",
        message=f"versions above {newest}, which nobody can read, are set aside",
        paths=tuple(keys.values()),
        loses=f"what versions {min(keys)} to {max(keys)} brought",
    )
    aside = None if dry_run else _set_aside(store, keys)
    return LogRepair(repairs=(repair,), refused=refused, aside=aside)


def _is_corrupt(store: Store, version: int) -> bool:
    """Say whether a version itself is broken, and not the way to it."""
    try:
        open_dataset(store, version)
    except CorruptLogError:
        return True
    return False


def _reason(version: int, newest: int | None) -> str:
    if newest is None:
        return _HOPELESS
    return _CONSENT if version > newest else _OLDER


def _set_aside(store: Store, keys: Mapping[int, str]) -> str:
    """Copy manifests out of the way, then delete them, the newest first."""
    directory = f"{_ASIDE}/{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    for key in keys.values():
        store.put(f"{directory}/{key}", store.get(key))
    # The hint names a version that is about to go.
    store.delete([VERSION_HINT])
    for version in sorted(keys, reverse=True):
        store.delete([keys[version]])
    return directory
