"""What a setting is: name, type, default, help, aliases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakehand.errors import ValidationError
from lakehand.model.quantities import format_duration, parse_auto, parse_bool

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Setting"]

_PLAIN_NUMBER = re.compile(r"\s*[0-9]+(\.[0-9]+)?\s*")
_FLAGS = (parse_bool, parse_auto)
#: Characters of a bad value, and of why it is bad, that a message shows.
_MOST_SHOWN = 200


def _refuse_flag(value: Any, parse: Callable[[Any], Any]) -> None:
    """Refuse True and False where a number, a name or a choice is asked for: True is no 1."""
    if isinstance(value, bool) and parse not in _FLAGS:
        raise ValueError("true and false are for settings that are on or off")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One thing that a user can set."""

    name: str
    parse: Callable[[Any], Any]
    #: None: not set; what happens then is said in `help`.
    default: Any
    help: str
    #: Spellings that users bring along: dotted options, camelCase, SQL options.
    aliases: tuple[str, ...] = ()
    #: Spellings whose plain numbers count in a unit of their own: ("write.timeout.ms", "ms").
    aliases_by_unit: tuple[tuple[str, str], ...] = ()
    #: Property of the table that gives the value when neither call nor environment does.
    table_property: str | None = None
    #: Smallest value allowed.
    minimum: Any = None
    #: Largest value allowed.
    maximum: Any = None

    @property
    def environment(self) -> str:
        return f"LAKEHAND_{self.name.upper()}"

    @property
    def spellings(self) -> tuple[str, ...]:
        """All names of the setting, the main one first."""
        with_units = (alias for alias, _ in self.aliases_by_unit)
        return (self.name, self.name.replace("_", "-"), *self.aliases, *with_units)

    def in_its_unit(self, spelling: str, value: Any) -> Any:
        """Return a plain number with the unit that `spelling` gives it; other values as they are.

        >>> setting = Setting(
        ...     name="wait", parse=str, default=None, help="", aliases_by_unit=(("wait.ms", "ms"),)
        ... )
        >>> setting.in_its_unit("wait.ms", 500), setting.in_its_unit("wait", 500)
        ('500ms', 500)
        """
        unit = dict(self.aliases_by_unit).get(spelling.lower())
        if unit is None or _PLAIN_NUMBER.fullmatch(_text(value)) is None:
            return value
        return f"{value}{unit}"

    def read(self, value: Any, source: str) -> Any:
        """Parse and check `value`; `source` says where it came from."""
        if isinstance(value, int) and not _text(value):
            raise ValidationError(f"{source}: {self.name} is too large a number", field=self.name)
        try:
            _refuse_flag(value, self.parse)
            parsed = self.parse(value)
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            reason = str(error)[:_MOST_SHOWN]
            message = f"{source}: {self.name} cannot be set to {_shown(value)}: {reason}"
            raise ValidationError(message, field=self.name, value=value) from error
        if self.minimum is not None and parsed < self.minimum:
            least = _words(self.minimum)
            message = f"{source}: {self.name} is {_shown(value)}, but must be at least {least}"
            raise ValidationError(message, field=self.name, value=value)
        if self.maximum is not None and parsed > self.maximum:
            most = _words(self.maximum)
            message = f"{source}: {self.name} is {_shown(value)}, but must be at most {most}"
            raise ValidationError(message, field=self.name, value=value)
        return parsed


def _text(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # An integer of more digits than Python spells.
        return ""


def _shown(value: Any) -> str:
    """Return a value as an error shows it: a long one by its beginning."""
    shown = repr(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."


def _words(limit: Any) -> str:
    return format_duration(limit) if isinstance(limit, timedelta) else str(limit)
