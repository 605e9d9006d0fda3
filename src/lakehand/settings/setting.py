"""The definition of a setting: name, type, default, help, aliases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakehand.errors import ValidationError
from lakehand.model.quantities import format_duration, parse_auto, parse_bool
from lakehand.model.secrets import parse_remote, parse_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PLAIN_NUMBER = re.compile(r"\s*[0-9]+(\.[0-9]+)?\s*")
_FLAGS = (parse_bool, parse_auto)
#: Maximum number of characters of an invalid value, and of the reason, in a message.
_MAX_SHOWN = 200


def _reject_boolean(value: Any, parse: Callable[[Any], Any]) -> None:
    """Reject True and False for settings that are not boolean: True must not be read as 1."""
    if isinstance(value, bool) and parse not in _FLAGS:
        raise ValueError("the setting is not boolean")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The definition of one setting."""

    name: str
    parse: Callable[[Any], Any]
    #: None: not set; `help` says what happens then.
    default: Any
    help: str
    #: Other accepted names: dotted options, camelCase, SQL options.
    aliases: tuple[str, ...] = ()
    #: Aliases whose plain numbers have another unit: ("write.timeout.ms", "ms").
    aliases_by_unit: tuple[tuple[str, str], ...] = ()
    #: Aliases with other values: ("verifyIntegrity", {"true": "digest"}).
    aliases_by_value: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    #: Table property that gives the value if neither the call nor the environment does.
    table_property: str | None = None
    #: Minimum allowed value.
    minimum: Any = None
    #: Maximum allowed value.
    maximum: Any = None

    @property
    def environment(self) -> str:
        return f"LAKEHAND_{self.name.upper()}"

    @property
    def spellings(self) -> tuple[str, ...]:
        """All names of the setting: its own, then its aliases."""
        others = (alias for alias, _ in (*self.aliases_by_unit, *self.aliases_by_value))
        return (self.name, self.name.replace("_", "-"), *self.aliases, *others)

    def in_its_unit(self, spelling: str, value: Any) -> Any:
        """Add the unit that the alias `spelling` implies to a plain number; translate its values.

        >>> setting = Setting(
        ...     name="wait", parse=str, default=None, help="", aliases_by_unit=(("wait.ms", "ms"),)
        ... )
        >>> setting.in_its_unit("wait.ms", 500), setting.in_its_unit("wait", 500)
        ('500ms', 500)
        """
        values = _of_alias(self.aliases_by_value, spelling)
        if values is not None:
            return values.get(_as_string(value).lower(), value)
        unit = _of_alias(self.aliases_by_unit, spelling)
        if unit is None or _PLAIN_NUMBER.fullmatch(_as_string(value)) is None:
            return value
        return f"{value}{unit}"

    def read(self, value: Any, source: str) -> Any:
        """Parse and check `value`; `source` names its origin in errors."""
        if isinstance(value, int) and not _as_string(value):
            raise ValidationError(f"{source}: {self.name} is too large", field=self.name)
        try:
            _reject_boolean(value, self.parse)
            parsed = self.parse(value)
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            reason = str(error)[:_MAX_SHOWN]
            if self.parse in (parse_secret, parse_remote):  # What was given may be one.
                message = f"{source}: {self.name} cannot be set to this: {reason}"
                raise ValidationError(message, field=self.name) from None
            message = f"{source}: {self.name} cannot be set to {_shorten(value)}: {reason}"
            raise ValidationError(message, field=self.name, value=value) from error
        if self.minimum is not None and parsed < self.minimum:
            least = _format_limit(self.minimum)
            message = f"{source}: {self.name} is {_shorten(value)}, but must be at least {least}"
            raise ValidationError(message, field=self.name, value=value)
        if self.maximum is not None and parsed > self.maximum:
            most = _format_limit(self.maximum)
            message = f"{source}: {self.name} is {_shorten(value)}, but must be at most {most}"
            raise ValidationError(message, field=self.name, value=value)
        return parsed


def _of_alias(aliases: Sequence[tuple[str, Any]], spelling: str) -> Any:
    return next((item for alias, item in aliases if alias.lower() == spelling.lower()), None)


def _as_string(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # An integer with more digits than Python converts to a string.
        return ""


def _shorten(value: Any) -> str:
    """Return a value as shown in an error, truncated if it is long."""
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def _format_limit(limit: Any) -> str:
    return format_duration(limit) if isinstance(limit, timedelta) else str(limit)
