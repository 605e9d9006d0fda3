"""The values of all settings for a call, and where each came from.

Precedence: call, environment (`LAKEHAND_*`), table property, policy of the service, default.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import warnings
from typing import TYPE_CHECKING, Any

from lakehand.errors import UnknownSettingError
from lakehand.observe.emit import get_logger, is_logging_configured, log_event
from lakehand.settings.hot_settings import HOT
from lakehand.settings.retention_settings import HEALTH, RETENTION
from lakehand.settings.rewrite_settings import COMPACTION, FILES
from lakehand.settings.run_settings import RUNNING
from lakehand.settings.sink_settings import BACKGROUND, NOTIFICATION, SINK, WRITING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakehand.settings.setting import Setting
    from lakehand.settings.setting_types import SettingValues
else:
    SettingValues = object  # The types of the values are for type checkers and editors only.

#: All settings, by area. Add a new setting to the tuple of its area.
AREAS: dict[str, tuple[Setting, ...]] = {
    "rewrite": COMPACTION,
    "file": FILES,
    "run": RUNNING,
    "retention": RETENTION,
    "health": HEALTH,
    "sink": SINK,
    "writing": WRITING,
    "notification": NOTIFICATION,
    "background": BACKGROUND,
    "hot": HOT,
}
SETTINGS: tuple[Setting, ...] = tuple(setting for area in AREAS.values() for setting in area)

_BY_SPELLING: dict[str, Setting] = {
    spelling.lower(): setting for setting in SETTINGS for spelling in setting.spellings
}

_PREFIX = "LAKEHAND_"
#: Options with this prefix are no settings, but go to the object store.
_STORAGE = "storage."
_VARIABLES = {setting.environment for setting in SETTINGS}
#: Variables that are not settings: the service's configuration file, tests and benchmarks.
_OTHER_VARIABLES = tuple(
    _PREFIX + name for name in ("ALLOW_SKIPS", "BENCH_", "CONFIG", "GOLDEN", "SOAK_", "TEST")
)
#: The catalog of names without one, and secrets, which configurations name as they like.
_ENDS_OF_OTHERS = ("_CATALOG", "_TOKEN", "_SECRET", "_PASSWORD", "_KEY")
_reported: set[str] = set()
_logger = get_logger(__name__)


def find_setting(name: str) -> Setting:
    """Return the setting with this name or alias; an error suggests the nearest name."""
    setting = _BY_SPELLING.get(name.lower())
    if setting is not None:
        return setting
    nearest = difflib.get_close_matches(name.lower(), _BY_SPELLING, n=1)
    hint = f"did you mean {_BY_SPELLING[nearest[0]].name}?" if nearest else None
    raise UnknownSettingError(f"no setting named {name!r}", field=name, hint=hint)


def parse_settings(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the values of settings by canonical name; `source` names their origin in errors."""
    values = _by_canonical_name(given)
    return {name: find_setting(name).read(value, source) for name, value in values.items()}


def split_storage_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Separate credentials and endpoints, as `storage.region`, from settings.

    >>> split_storage_options({"min_files": 2, "storage.region": "eu-west-1"})
    ({'min_files': 2}, {'region': 'eu-west-1'})
    """
    storage = {
        name[len(_STORAGE) :]: str(value)
        for name, value in given.items()
        if name.lower().startswith(_STORAGE) and value is not None
    }
    rest = {name: value for name, value in given.items() if not name.lower().startswith(_STORAGE)}
    return rest, storage


def _by_canonical_name(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a call, by canonical name."""
    found = ((find_setting(name), name, value) for name, value in call.items())
    return {
        setting.name: setting.in_its_unit(spelling, value)
        for setting, spelling, value in found
        if value is not None
    }


def _own_variables() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)}
    for name in own.keys() - _VARIABLES - _reported:
        if not name.startswith(_OTHER_VARIABLES) and not name.endswith(_ENDS_OF_OTHERS):
            _reported.add(name)
            _report_unknown(name)
    return own


def _report_unknown(name: str) -> None:
    """Warn, once per process, of a LAKEHAND_ variable that is not a setting.

    It is not an error: the environment may be shared with other versions of lakehand.
    """
    wanted = name.removeprefix(_PREFIX).lower()
    by_name = {re.sub("[.-]", "_", spelling): found for spelling, found in _BY_SPELLING.items()}
    nearest = difflib.get_close_matches(wanted, by_name, n=1)
    hint = f"; did you mean {by_name[nearest[0]].environment}?" if nearest else ""
    message = f"the environment variable {name} is ignored: there is no such setting{hint}"
    if is_logging_configured(_logger):
        log_event(_logger, logging.WARNING, "unknown_variable", "%s", message, variable=name)
    else:
        warnings.warn(message, stacklevel=2)


class Settings(SettingValues):
    """The values of all settings for one call, each with its source.

    Each value is an attribute: `settings.target_file_bytes`.
    """

    def __init__(
        self,
        call: Mapping[str, Any] | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        policy: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self._call = _by_canonical_name(call or {})
        # Only lakehand's variables: settings are sent to tasks.
        self._environment = _own_variables() if environment is None else environment
        self._policy = dict(policy or {})
        self._defaults = dict(defaults or {})
        self.sources: dict[str, str] = {}
        for setting in SETTINGS:
            value, source = self._choose(setting, properties or {})
            setattr(self, setting.name, value)
            self.sources[setting.name] = source

    def _choose(self, setting: Setting, properties: Mapping[str, str]) -> tuple[Any, str]:
        if setting.name in self._call:
            return setting.read(self._call[setting.name], "call"), "call"
        if setting.environment in self._environment:
            source = f"environment {setting.environment}"
            return setting.read(self._environment[setting.environment], source), source
        if setting.table_property and setting.table_property in properties:
            source = f"table property {setting.table_property}"
            return setting.read(properties[setting.table_property], source), source
        if setting.name in self._policy:
            return self._policy[setting.name], "policy"
        return self._defaults.get(setting.name, setting.default), "default"

    def with_call(self, call: Mapping[str, Any]) -> Settings:
        """Return these settings, overridden by those of a call."""
        return self._with({**self._call, **_by_canonical_name(call)})

    def with_properties(self, properties: Mapping[str, str]) -> Settings:
        """Return these settings with table properties, which call and environment override."""
        return self._with(self._call, properties=properties)

    def with_defaults(self, defaults: Mapping[str, Any]) -> Settings:
        """Return these settings with other defaults, for example those of a format."""
        return Settings(
            self._call, environment=self._environment, policy=self._policy, defaults=defaults
        )

    def _with(
        self, call: Mapping[str, Any], *, properties: Mapping[str, str] | None = None
    ) -> Settings:
        return Settings(
            call,
            properties=properties,
            environment=self._environment,
            policy=self._policy,
            defaults=self._defaults,
        )

    def __getitem__(self, name: str) -> Any:
        """Return the value of the setting with this name or alias."""
        return getattr(self, find_setting(name).name)

    def __iter__(self) -> Iterator[str]:
        return (setting.name for setting in SETTINGS)
