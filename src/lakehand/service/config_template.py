"""The file that `lakehand service init` writes: every key with its default and one sentence.

It is made from the declarations in `config`, so that both cannot differ.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import MISSING, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehand.errors import ConfigError
from lakehand.model.quantities import format_bytes, format_duration
from lakehand.service.config import (
    CheckAfter,
    HookSection,
    MetricsSection,
    Policy,
    PoolSection,
    ServiceSection,
    SourceSection,
    StorageSection,
)
from lakehand.service.config_sections import BudgetSection, CostsSection, WebSection
from lakehand.settings import find_setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_OPENING = """\
# Configuration of the lakehand service.
# A key behind a '#' has its default, or shows an example. `lakehand policies check` checks the
# file; SIGHUP makes a running service read it again. Durations are written as "90s", "10m", "2h",
# "7d", sizes as "128MiB". Relative paths begin at the directory of this file.
"""
#: Keys of a storage section are those of the store; these are examples.
_STORAGE = {
    "endpoint": ("Any option of the store, such as its endpoint.", "https://s3.example.com"),
    "secret_access_key": (
        "A secret is named as env:VARIABLE or file:/path, and read when it is needed.",
        "env:S3_SECRET",
    ),
}

#: What makes the URL of a job store a secret, and modes of files with and without one.
_PASSWORD = re.compile(r"//[^/@]*:.*@|[?&]password=")
_PRIVATE, _AS_UMASK = 0o600, 0o666


def render_config(include: Sequence[str] = (), store: str | None = None) -> str:
    """Return the file as text; with `include`, a source of these patterns is active."""
    parts = [
        _OPENING,
        _section(ServiceSection, "[service]", {} if store is None else {"store": store}),
        _section(WebSection, "[web]", is_active=False),
        _section(MetricsSection, "[metrics]", is_active=False),
        _section(SourceSection, "[[source]]", _source_values(include), is_active=bool(include)),
        _policy(),
        _section(PoolSection, "[[pool]]", is_active=False),
        _section(StorageSection, "[storage.NAME]", is_active=False, more=tuple(_lines(_STORAGE))),
        _section(HookSection, "[[hook]]", is_active=False),
        _section(BudgetSection, "[budget.NAME]", is_active=False),
        _section(CostsSection, "[costs]", is_active=False),
    ]
    return "\n".join(parts)


def write_config(
    path: Path, *, include: Sequence[str] = (), store: str | None = None, force: bool = False
) -> None:
    """Write the file; ConfigError if there is one already, unless `force` replaces it."""
    text = render_config(include, store)
    mode = _PRIVATE if store and _PASSWORD.search(store) else _AS_UMASK
    try:
        if force:
            _replace(path, text, mode)
        else:
            _create(path, text, mode)
    except FileExistsError as error:
        message = f"{path} exists already, and was not changed"
        raise ConfigError(message, hint="--force replaces it") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}") from error


def _create(path: Path, text: str, mode: int) -> None:
    """Create a file; an existing link is an error, and not followed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123  a descriptor
        file.write(text)


def _replace(path: Path, text: str, mode: int) -> None:
    """Replace a file; what its owner allowed others is not extended."""
    scratch = path.with_name(f".{path.name}.{uuid4().hex}")
    _create(scratch, text, mode)
    if path.is_file() and not path.is_symlink():
        scratch.chmod(stat.S_IMODE(path.stat().st_mode) & mode)
    scratch.replace(path)


def _source_values(include: Sequence[str]) -> dict[str, Any]:
    return {"name": "lake", "include": tuple(include)} if include else {}


def _section(
    section: type[Any],
    heading: str,
    values: Mapping[str, Any] | None = None,
    *,
    is_active: bool = True,
    more: Sequence[str] = (),
) -> str:
    """Return a section; where it is not active, its heading and required keys are comments too."""
    lines = [f"# {_meaning(section)}", heading if is_active else f"#{heading}"]
    for item in fields(section):
        if "parse" not in item.metadata:
            continue
        given = (values or {}).get(item.name, MISSING)
        is_set = is_active and (given is not MISSING or item.metadata["is_required"])
        value = item.metadata["example"] if item.default in (MISSING, None) else item.default
        shown = value if given is MISSING else given
        lines.append(f"# {item.metadata['help']}")
        lines.append(f"{'' if is_set else '#'}{item.name} = {toml_value(shown, item.name)}")
    return "\n".join([*lines, *more, ""])


def _meaning(section: type[Any]) -> str:
    """Return the sentence of a section, from its docstring."""
    sentence = (section.__doc__ or "").partition(": ")[2].splitlines()[0]
    return sentence[:1].upper() + sentence[1:]


def _policy() -> str:
    after = ", ".join(
        f"{item.name} = {toml_value(item.default, item.name)}" for item in fields(CheckAfter)
    )
    target = find_setting("target_file_bytes")
    more = [
        "# A table is checked after this number of commits or bytes, or after this time.",
        f"#check_after = {{ {after} }}",
        "# Verbs by cron expression, in addition to what is due; default: none.",
        '#schedule = { verify = "0 4 * * 0" }',
        f"# Any setting (`lakehand settings`). {target.help}",
        f"#{target.name} = {toml_value(target.default, target.name)}",
        "# A further policy has another name and its own patterns: [policy.sales].",
    ]
    return _section(Policy, "[policy.default]", more=more)


def _lines(keys: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for name, (sentence, example) in keys.items():
        yield f"# {sentence}"
        yield f"#{name} = {toml_value(example, name)}"


def toml_value(value: Any, name: str) -> str:
    """Return a value as TOML.

    >>> toml_value(("a", "b"), "match"), toml_value(True, "enabled")
    ('["a", "b"]', 'true')
    """
    text = str(value)
    match value:
        case bool():
            return text.lower()
        case tuple():
            return f"[{', '.join(toml_value(item, name) for item in value)}]"
        case dict():
            items = (f"{json.dumps(key)} = {toml_value(item, name)}" for key, item in value.items())
            return f"{{ {', '.join(items)} }}"
        case int() | float() if not name.endswith("bytes"):
            return text
        case int():
            text = format_bytes(value)
        case timedelta():
            text = format_duration(value)
    return json.dumps(text, ensure_ascii=False)
