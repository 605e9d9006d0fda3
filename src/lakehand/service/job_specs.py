"""What the process of a job is told: settings of the table's policy, and how to reach its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehand.service.policies import storage_profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakehand.service.config import PoolSection, ServiceConfig


def storage_options(config: ServiceConfig, url: str) -> Mapping[str, str] | None:
    """Return the options of the storage section that a URL belongs to, secrets included."""
    name = storage_profile(config, url)
    return None if name is None else config.storage[name].resolve()


def pool_of(config: ServiceConfig, name: str) -> PoolSection:
    """Return a pool by its name; the first one if it is no longer configured."""
    return next((pool for pool in config.pools if pool.name == name), config.pools[0])
