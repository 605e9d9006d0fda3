"""Sections of `lakehand.toml` about spending and the HTTP server, and how keys are declared."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehand.model.quantities import OneOf, parse_bytes, parse_count, parse_number, parse_string
from lakehand.model.secrets import parse_secret
from lakehand.service.job_states import ROLES
from lakehand.service.url_patterns import matches, matches_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: What a GiB is measured in.
GIB = 2**30
_MOST_NICE = 19


def key(
    parse: Callable[[Any], Any],
    default: Any = ...,
    *,
    help: str,  # noqa: A002  the word that options of commands have
    example: Any = None,
    is_shown: bool = True,
) -> Any:
    """Declare a key of the file. Without a default it is required.

    `help` is one sentence for the file that `lakehand service init` writes; `example` is shown
    there where there is no default.
    """
    metadata = {"parse": parse, "is_required": default is ..., "help": help, "example": example}
    if default is ...:
        return field(metadata=metadata, repr=is_shown)
    return field(default=default, metadata=metadata, repr=is_shown)


def strings(value: Any) -> tuple[str, ...]:
    """Read a list of strings."""
    if isinstance(value, str) or not all(isinstance(item, str) for item in value):
        raise TypeError("it is not a list of strings")
    return tuple(value)


def positive(value: Any) -> int:
    """Read a number from 1."""
    number = parse_count(value)
    if number < 1:
        raise ValueError("it must be at least 1")
    return number


def positive_bytes(value: Any) -> int:
    """Read a size above nothing."""
    number = parse_bytes(value)
    if number < 1:
        raise ValueError("it must be at least 1 byte")
    return number


def positive_number(value: Any) -> float:
    """Read a number above 0."""
    number = parse_number(value)
    if not number > 0:
        raise ValueError("it must be above 0")
    return number


def niceness(value: Any) -> int:
    """Read a niceness, which only lowers the priority."""
    number = parse_count(value)
    if not 0 <= number <= _MOST_NICE:
        raise ValueError(f"it must be between 0 and {_MOST_NICE}")
    return number


def _amount(value: Any) -> float:
    number = parse_number(value)
    if number < 0:
        raise ValueError("it must not be negative")
    return number


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetSection:
    """`[budget.NAME]`: what jobs of some tables may spend per day, all together."""

    name: str
    match: tuple[str, ...] = key(
        strings, ("**",), help="Patterns of URLs, or of names without a slash."
    )
    bytes_per_day: int | None = key(
        parse_bytes, None, help="Bytes of data files that may be rewritten.", example="20TiB"
    )
    core_hours_per_day: float | None = key(
        _amount, None, help="Processor time of jobs, in hours of one core.", example=400
    )
    cost_per_day: float | None = key(
        _amount, None, help="Money, by the prices of `[costs]`.", example=50.0
    )

    def limits(self) -> Mapping[str, float]:
        """Return what may be spent, by unit."""
        hours = self.core_hours_per_day
        given = {
            "bytes": self.bytes_per_day,
            "core_seconds": None if hours is None else 3600.0 * hours,
            "cost": self.cost_per_day,
        }
        return {unit: float(amount) for unit, amount in given.items() if amount is not None}

    def applies_to(self, url: str, name: str | None) -> bool:
        """Whether it limits the jobs of a table."""
        return any(
            matches(url, pattern)
            if "/" in pattern or pattern == "**"
            else matches_name(name or "", pattern)
            for pattern in self.match
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CostsSection:
    """`[costs]`: prices, for budgets of money and for the return of each job."""

    core_hour: float = key(_amount, 0.04, help="An hour of one core.")
    gib_read: float = key(_amount, 0.0, help="A GiB that is read.")
    gib_written: float = key(_amount, 0.0, help="A GiB that is written.")
    gib_month: float = key(_amount, 0.023, help="A GiB that is stored for a month.")
    requests_1000: float = key(_amount, 0.005, help="A thousand requests to the store.")

    def cost_of(
        self,
        *,
        core_seconds: float,
        bytes_read: float = 0.0,
        bytes_written: float = 0.0,
        requests: float = 0.0,
    ) -> float:
        """Return what work costs.

        >>> CostsSection(core_hour=3600.0).cost_of(core_seconds=2.0)
        2.0
        """
        return (
            self.core_hour * core_seconds / 3600.0
            + self.gib_read * bytes_read / GIB
            + self.gib_written * bytes_written / GIB
            + self.requests_1000 * requests / 1000.0
        )


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`; ValueError if it is not one.

    >>> split_address("[::1]:8484")
    ('::1', 8484)
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 2**16:
        raise ValueError("it is not an address such as 127.0.0.1:8484")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _address(value: Any) -> str:
    text = parse_string(value)
    split_address(text)
    return text


def _networks(value: Any) -> tuple[str, ...]:
    networks = strings(value)
    for network in networks:
        ipaddress.ip_network(network, strict=False)
    return networks


def _roles(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not set(value.values()) <= set(ROLES):
        raise TypeError(f"it is not a table of groups and their roles: {', '.join(ROLES)}")
    return dict(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class WebSection:
    """`[web]`: the HTTP server: pages, the API, and notifications."""

    listen: str = key(_address, "127.0.0.1:8484", help="Address of the HTTP server.")
    token: str | None = key(
        parse_secret,
        None,
        help="Token with the role admin, in addition to those of `lakehand service token create`.",
        example="env:LAKEHAND_WEB_TOKEN",
    )
    auth: str | None = key(
        OneOf("none", "token", "proxy"),
        None,
        help="Who may connect: this machine (none), tokens, or users that a proxy names.",
        example="token",
    )
    allowed_hosts: tuple[str, ...] = key(
        strings, (), help="Names that requests may use for the server; default: any, with auth."
    )
    trusted_proxies: tuple[str, ...] = key(
        _networks, (), help="Addresses of proxies whose headers name the user, as 10.0.0.0/8."
    )
    user_header: str = key(
        parse_string, "X-Forwarded-User", help="Header in which a proxy names the user."
    )
    groups_header: str = key(
        parse_string, "X-Forwarded-Groups", help="Header in which a proxy names their groups."
    )
    roles: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "parse": _roles,
            "is_required": False,
            "help": "Role of each group of a proxy; * is everyone that it names.",
            "example": {"platform": "admin", "*": "viewer"},
        },
    )
