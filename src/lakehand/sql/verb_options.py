"""The options of a statement, as the methods of `Table` take them."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from typing import TYPE_CHECKING, Any

from lakehand.errors import ValidationError
from lakehand.settings import find_setting, split_storage_options
from lakehand.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

_INSIDE_NAME = re.compile(r"[_.-]")
#: A statement states its own columns and condition by clauses, and progress is no option.
_NOT_OPTIONS = {"self", "on_progress", "settings", "plan", "file_filter"} | {
    "source", "on", "target_alias", "source_alias",
}  # fmt: skip
#: OPTIMIZE compacts two small files, as in Delta.
_OPTIMIZE_MIN_FILES = 2


def split_storage(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Separate the credentials and endpoints (`storage.*`) from the options of a verb."""
    rest, storage = split_storage_options(options)
    return {name: value for name, value in rest.items() if value is not None}, storage


def verb_options(verb: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under the names of the verb's arguments and of settings, checked."""
    own = _arguments(verb)
    found: dict[str, Any] = {}
    for spelling, value in options.items():
        name, given = _named(verb, spelling, value, own)
        if name in found:
            message = f"{spelling}: the option {name} is given twice"
            raise ValidationError(message, field=spelling, value=value)
        found[name] = given
    return found


def _arguments(verb: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(getattr(Table, verb)).parameters
    return {name: one for name, one in parameters.items() if name not in _NOT_OPTIONS}


def _named(
    verb: str, spelling: str, value: Any, own: Mapping[str, inspect.Parameter]
) -> tuple[str, Any]:
    plain = {_INSIDE_NAME.sub("", name): name for name in own}
    name = plain.get(_INSIDE_NAME.sub("", spelling).lower())
    if name is None:
        if "settings" not in inspect.signature(getattr(Table, verb)).parameters:
            options = ", ".join(own) or "none"
            message = f"{verb} has no option {spelling}; its options are {options}"
            raise ValidationError(message, field=spelling, value=value)
        setting = find_setting(spelling)
        in_unit = setting.in_its_unit(spelling, value)
        setting.read(in_unit, f"option {spelling}")
        return setting.name, in_unit
    if isinstance(own[name].default, bool) and not isinstance(value, bool):
        raise ValidationError(f"{spelling} is true or false", field=name, value=value)
    return name, value


def optimize_options(
    options: Mapping[str, Any], *, is_clustered: bool
) -> tuple[str, dict[str, Any]]:
    """Return the verb of OPTIMIZE and its options: `cluster` if the table declares columns.

    FULL needs clustering columns, which `cluster` says where there are none.
    """
    if is_clustered or options.get("full"):
        return "cluster", dict(options)
    found = {name: value for name, value in options.items() if name != "full"}
    is_given = any(_is_min_files(name) for name in found)
    return "compact", found if is_given else {**found, "min_files": _OPTIMIZE_MIN_FILES}


def _is_min_files(spelling: str) -> bool:
    return spelling.lower() in {name.lower() for name in find_setting("min_files").spellings}


def scope_of(options: Mapping[str, Any]) -> str:
    """Return what tells queued jobs of one verb apart: a hash of their options."""
    if not options:
        return ""
    described = json.dumps(options, sort_keys=True, default=str)
    return f"sql-{hashlib.sha256(described.encode()).hexdigest()[:16]}"
