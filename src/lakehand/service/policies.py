"""Which policy a table has, and where each of its settings comes from.

Precedence: settings of the table itself, then its properties, then its policy, then defaults.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakehand.service.url_patterns import matches, matches_name, split_pattern
from lakehand.settings import Settings, parse_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakehand.service.config import Policy, ServiceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A pattern of a policy that matches a table; None: no pattern does."""

    policy: Policy
    pattern: str | None


def find_matches(policies: Sequence[Policy], url: str, name: str | None = None) -> list[Match]:
    """Return all patterns that match a table; the policy of the first is the table's.

    A pattern of the table's name comes before one of its URL; then the longest fixed part decides,
    then the longest pattern, then the order of the file.
    """
    found = []
    for policy in policies:
        for pattern in policy.match:
            is_name = "/" not in pattern and pattern != "**"
            if matches_name(name or "", pattern) if is_name else matches(url, pattern):
                rank = (is_name, len(split_pattern(pattern)[0]), len(pattern))
                found.append((rank, Match(policy=policy, pattern=pattern)))
    found.sort(key=lambda one: one[0], reverse=True)
    default = next(policy for policy in policies if policy.name == "default")
    return [match for _, match in found] or [Match(policy=default, pattern=None)]


def find_policy(policies: Sequence[Policy], url: str, name: str | None = None) -> Policy:
    """Return the policy whose pattern says most about a table."""
    return find_matches(policies, url, name)[0].policy


@dataclass(frozen=True, kw_only=True, slots=True)
class TablePolicy:
    """A policy with the overrides of one table."""

    policy: Policy
    overrides: Mapping[str, Any]

    def settings(self, properties: Mapping[str, str] | None = None) -> Settings:
        """Return the settings of the table's jobs; `sources` says where each came from."""
        parsed = parse_settings(self.policy.settings, f"policy {self.policy.name}")
        chosen = Settings(self.overrides, properties=properties, policy=parsed)
        for name in parsed:
            if chosen.sources[name] == "policy":
                chosen.sources[name] = f"policy {self.policy.name}"
        for name in self.overrides:
            chosen.sources[name] = "table"
        return chosen

    @property
    def digest(self) -> str:
        """A short hash of all that the policy says: another one re-evaluates queued jobs."""
        described = json.dumps([asdict(self.policy), dict(self.overrides)], default=str)
        return hashlib.sha256(described.encode()).hexdigest()[:16]


def storage_profile(config: ServiceConfig, url: str) -> str | None:
    """Return the name of the storage section of a table's URL, the longest pattern first."""
    found = [
        (len(pattern), name)
        for name, section in config.storage.items()
        for pattern in section.match
        if matches(url, pattern)
    ]
    return max(found)[1] if found else None
