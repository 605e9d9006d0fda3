"""`lakehand.toml`: where tables are, how they are maintained, and what may run at once.

Every key is checked: an unknown one is refused with the nearest name, so that a misspelt limit does
not silently become none.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from lakehand.catalogs import split_catalog
from lakehand.errors import ConfigError, LakehandError
from lakehand.model.maintenance import MAINTENANCE_STEPS
from lakehand.model.quantities import (
    OneOf,
    parse_bool,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_string,
)
from lakehand.model.secrets import SECRET_KINDS, parse_remote, parse_secret, read_secret
from lakehand.service.config_sections import (
    BudgetSection,
    CostsSection,
    WebSection,
    niceness,
    positive_bytes,
    positive_number,
)
from lakehand.service.config_sections import key as _key
from lakehand.service.config_sections import positive as _positive
from lakehand.service.config_sections import strings as _texts
from lakehand.service.job_states import EVENT_KINDS, LANE_OF
from lakehand.service.schedules import Schedule
from lakehand.service.windows import Window, parse_windows
from lakehand.settings import find_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakehand.settings import Setting

CONFIG_NAME = "lakehand.toml"
#: The job store where no other one is named.
DEFAULT_STORE = "lakehand.db"
_HIGHEST_SCORE = 100
#: Names the file where no option does.
CONFIG_VARIABLE = "LAKEHAND_CONFIG"


def _zone(value: Any) -> ZoneInfo:
    try:
        return ZoneInfo(parse_string(value))
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"{value!r} is not a time zone such as Europe/Berlin") from error


def _steps(value: Any) -> tuple[str, ...]:
    steps = tuple(step.replace("-", "_") for step in _texts(value))
    for step in steps:
        if step not in MAINTENANCE_STEPS:
            raise ValueError(
                f"{step!r} is not a step; the steps are {', '.join(MAINTENANCE_STEPS)}"
            )
    return steps


def _hook_url(value: Any) -> str:
    """Check the URL of a webhook, or the place of one that is secret."""
    text = parse_string(value)
    if text.startswith(SECRET_KINDS):
        return text
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        raise ValueError("it is not a URL such as https://example.com/hook, nor env:VARIABLE")
    return text


def _event_patterns(value: Any) -> tuple[str, ...]:
    patterns = _texts(value)
    known = ["*", *EVENT_KINDS, *{f"{kind.partition('.')[0]}.*" for kind in EVENT_KINDS}]
    for pattern in patterns:
        if pattern not in known:
            near = difflib.get_close_matches(pattern, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            raise ValueError(f"there is no event {pattern!r}; {hint}")
    if not patterns:
        raise ValueError("a hook without events is never called")
    return patterns


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSection:
    """`[service]`: the service itself."""

    #: May hold a password, so that it is never shown.
    store: str = _key(
        parse_string,
        f"sqlite:///{DEFAULT_STORE}",
        is_shown=False,
        help="Job store: SQLite for one machine, postgresql+psycopg://... for several.",
    )
    time_zone: ZoneInfo = _key(
        _zone, ZoneInfo("UTC"), help="Time zone of schedules and of the days of budgets."
    )
    lease: timedelta = _key(
        parse_duration,
        timedelta(seconds=60),
        help="How long a job stays with a worker that is silent.",
    )
    poll_interval: timedelta = _key(
        parse_duration, timedelta(minutes=1), help="How soon a table is looked at after a change."
    )
    max_poll_interval: timedelta = _key(
        parse_duration,
        timedelta(hours=1),
        help="How late at most, while it does not change.",
    )
    job_timeout: timedelta = _key(
        parse_duration,
        timedelta(hours=6),
        help="A job without progress for so long is ended and retried; 0s: never.",
    )
    drain_timeout: timedelta = _key(
        parse_duration,
        timedelta(minutes=5),
        help="How long running jobs have to commit what is proved when the service ends.",
    )
    keep_history: timedelta = _key(
        parse_duration, timedelta(days=90), help="How long ended jobs and events are kept."
    )
    max_concurrent_jobs: int = _key(
        _positive, 4, help="Jobs that each worker runs at once; pools limit all workers together."
    )
    max_spark_sessions: int = _key(
        _positive, 1, help="Spark sessions that each worker keeps; jobs of a Spark pool share one."
    )


def _score(value: Any) -> int:
    number = parse_count(value)
    if number > _HIGHEST_SCORE:
        raise ValueError(f"a health score is at most {_HIGHEST_SCORE}")
    return number


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsSection:
    """`[metrics]`: what /metrics tells, and which tables count as unhealthy."""

    per_table: str = _key(
        OneOf("none", "unhealthy", "all"),
        "unhealthy",
        help="Tables with separate metrics: none, unhealthy (unreadable and held too), all.",
    )
    unhealthy_below: int = _key(
        _score, 60, help="Health score, 0 to 100, below which a table is unhealthy."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceSection:
    """`[[source]]`: where tables are found."""

    name: str = _key(parse_string, help="Name of the source.", example="lake")
    kind: str = _key(OneOf("paths"), "paths", help="How tables are found: by listing directories.")
    include: tuple[str, ...] = _key(
        _texts,
        help="Tables, directories or patterns: * is one part of a path, ** any number of parts.",
        example=("s3://lake/**",),
    )
    exclude: tuple[str, ...] = _key(_texts, (), help="Patterns of what is left out.")
    every: timedelta = _key(
        parse_duration, timedelta(minutes=10), help="How often the source is listed."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageSection:
    """`[storage.NAME]`: how to connect to some of the tables. Jobs hold its name alone."""

    match: tuple[str, ...] = _key(
        _texts, help="Patterns of the URLs that it applies to.", example=("s3://lake/**",)
    )
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict)

    def resolve(self) -> dict[str, str]:
        """Return the options with the current secrets in them."""
        return {**self.options, **{name: read_secret(at) for name, at in self.secrets.items()}}


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSection:
    """`[[pool]]`: how many jobs run at once, and on what."""

    name: str = _key(parse_string, help="Name of the pool.", example="default")
    max_running: int = _key(
        _positive, 4, help="Jobs of the pool that run at once, on all workers together."
    )
    engine: str = _key(
        OneOf("local", "spark"), "local", help="Where tasks run: local processes or Spark."
    )
    master: str | None = _key(parse_string, None, help="Spark master.", example="spark://host:7077")
    remote: str | None = _key(
        parse_remote, None, help="Spark Connect server.", example="sc://host:15002"
    )
    rate_bytes_per_second: int | None = _key(
        positive_bytes,
        None,
        help="Bytes that its jobs read and write per second, each; slots share it equally.",
        example="400MiB",
    )
    nice: int = _key(niceness, 0, help="Niceness of its processes, up to 19: the lowest priority.")
    ionice: str | None = _key(
        OneOf("best-effort", "idle"),
        None,
        help="I/O priority of its processes, where the command ionice exists.",
        example="idle",
    )


#: Where the file has no pools: only the slots of the workers limit what runs.
DEFAULT_POOL = PoolSection(name="default", max_running=64)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckAfter:
    """`check_after`: a table is assessed after any of these."""

    commits: int = _key(_positive, 10, help="Commits since it was last maintained.")
    bytes: int = _key(parse_bytes, 2**30, help="Bytes written since it was last maintained.")
    time: timedelta = _key(
        parse_duration, timedelta(minutes=5), help="Time since then, if there was a commit."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """`[policy.NAME]`: how the tables that it matches are maintained. Other keys are settings."""

    name: str
    match: tuple[str, ...] = _key(
        _texts, ("**",), help="Patterns of URLs, or of names without a slash; the longest wins."
    )
    enabled: bool = _key(parse_bool, default=True, help="Whether these tables are maintained.")
    steps: tuple[str, ...] = _key(
        _steps, MAINTENANCE_STEPS, help="Steps of maintenance that may run."
    )
    check_after: CheckAfter = CheckAfter()
    #: Verbs by cron expression, in addition to what is due.
    schedule: Mapping[str, Schedule] = field(default_factory=dict)
    windows: tuple[Window, ...] = _key(
        parse_windows,
        (),
        help="When jobs may run; without any, at all times.",
        example=({"cron": "0 22 * * 1-5", "for": "7h"},),
    )
    quiet: tuple[Window, ...] = _key(
        parse_windows,
        (),
        help="When no job may run, whatever `windows` says.",
        example=({"cron": "45 23 28-31 * *", "for": "30m", "why": "end of month"},),
    )
    pool: str = _key(parse_string, "default", help="Pool in which the jobs of the tables run.")
    importance: float = _key(
        positive_number,
        1.0,
        help="How often they are read relative to others: their jobs go first and are worth more.",
    )
    slice_bytes: int = _key(
        positive_bytes,
        8 * 2**30,
        help="Bytes that one job rewrites at most; the rest takes its next turn.",
    )
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class HookSection:
    """`[[hook]]`: a command or a webhook that is called after events."""

    events: tuple[str, ...] = _key(
        _event_patterns, help="Events after which it is called.", example=("job.failed",)
    )
    command: tuple[str, ...] = _key(
        _texts, (), help="Program and arguments; a hook has either a command or a url."
    )
    #: May hold a token, so that it is never shown.
    url: str | None = _key(
        _hook_url,
        None,
        is_shown=False,
        help="Address to which the event is posted.",
        example="https://example.com/hook",
    )
    secret: str | None = _key(
        parse_secret, None, help="Secret that signs what is posted.", example="env:HOOK_SECRET"
    )
    format: str = _key(
        OneOf("json", "slack"),
        "json",
        help="What is posted: the event, or a message for Slack, Mattermost and the like.",
    )
    timeout: timedelta = _key(
        parse_duration, timedelta(seconds=30), help="How long a call may take."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceConfig:
    """Everything that the file says."""

    service: ServiceSection = ServiceSection()
    web: WebSection = WebSection()
    metrics: MetricsSection = MetricsSection()
    sources: tuple[SourceSection, ...] = ()
    storage: Mapping[str, StorageSection] = field(default_factory=dict)
    pools: tuple[PoolSection, ...] = (DEFAULT_POOL,)
    policies: tuple[Policy, ...] = (Policy(name="default"),)
    hooks: tuple[HookSection, ...] = ()
    budgets: tuple[BudgetSection, ...] = ()
    costs: CostsSection = CostsSection()
    path: Path | None = None


def find_config(path: str | Path | None = None, *, is_required: bool = True) -> Path | None:
    """Return the file to read: the one that is named, that of `LAKEHAND_CONFIG`, or the default.

    Without any of them it is an error, or None if no file is required.
    """
    named = path or os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    if Path(CONFIG_NAME).is_file():
        return Path(CONFIG_NAME)
    if not is_required:
        return None
    message = f"there is no {CONFIG_NAME} in this directory"
    hint = "lakehand service init writes one; --config and --store name another place"
    raise ConfigError(message, hint=hint)


_SECTIONS = {
    "service", "web", "metrics", "source", "storage", "pool", "policy", "hook", "budget", "costs",
}  # fmt: skip


def load_config(path: str | Path) -> ServiceConfig:
    """Read and check a file; ConfigError says what is wrong, and where."""
    file = Path(path)
    try:
        document = tomllib.loads(file.read_text())
    except FileNotFoundError as error:
        message = f"there is no configuration file {file}"
        raise ConfigError(message, hint="lakehand service init writes one") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    try:
        return _resolve_paths(parse_config(document, path=file), file.absolute().parent)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", hint=error.hint) from error


def parse_config(document: Mapping[str, Any], *, path: Path | None = None) -> ServiceConfig:
    """Check what a file says."""
    _refuse_unknown(document, _SECTIONS, "the file")
    config = ServiceConfig(
        service=_read(ServiceSection, document.get("service", {}), "[service]"),
        web=_read(WebSection, document.get("web", {}), "[web]"),
        metrics=_read(MetricsSection, document.get("metrics", {}), "[metrics]"),
        sources=_read_all(SourceSection, document, "source"),
        storage=_read_storage(_table(document, "storage")),
        pools=_read_all(PoolSection, document, "pool") or (DEFAULT_POOL,),
        policies=_read_policies(_table(document, "policy")),
        hooks=_read_all(HookSection, document, "hook"),
        budgets=tuple(
            _read_budget(name, values) for name, values in _table(document, "budget").items()
        ),
        costs=_read(CostsSection, document.get("costs", {}), "[costs]"),
        path=path,
    )
    _check_names(config)
    return config


def _resolve_paths(config: ServiceConfig, directory: Path) -> ServiceConfig:
    """Read relative paths from the directory of the file, wherever the service is started."""
    kind, separator, database = config.service.store.partition(":///")
    store = config.service.store
    if separator and kind.startswith("sqlite") and database:
        store = f"{kind}:///{directory / database}"

    def is_absolute(pattern: str) -> bool:
        return "://" in pattern or pattern.startswith("**") or bool(split_catalog(pattern))

    def absolute(patterns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(one if is_absolute(one) else str(directory / one) for one in patterns)

    def absolute_unless_name(patterns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(absolute((pattern,))[0] if "/" in pattern else pattern for pattern in patterns)

    return replace(
        config,
        service=replace(config.service, store=store),
        sources=tuple(
            replace(one, include=absolute(one.include), exclude=absolute(one.exclude))
            for one in config.sources
        ),
        storage={
            name: replace(one, match=absolute(one.match)) for name, one in config.storage.items()
        },
        policies=tuple(
            replace(one, match=absolute_unless_name(one.match)) for one in config.policies
        ),
        budgets=tuple(
            replace(one, match=absolute_unless_name(one.match)) for one in config.budgets
        ),
    )


def _read(section: type[Any], given: Any, where: str, **known: Any) -> Any:
    """Build a section from what the file gives for it."""
    if not isinstance(given, dict):
        raise ConfigError(f"{where} is not a table")
    keys = {item.name: item for item in fields(section) if "parse" in item.metadata}
    _refuse_unknown(given, keys, where)
    for name, item in keys.items():
        if name in given:
            known[name] = _parsed(item.metadata["parse"], given[name], f"{where} {name}")
        elif item.metadata["is_required"]:
            raise ConfigError(f"{where} lacks the key {name}")
    return section(**known)


def _read_all(section: type[Any], document: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    given = document.get(name, [])
    if not isinstance(given, list):
        raise ConfigError(f"[{name}] must be written as [[{name}]], because there may be several")
    return tuple(_read(section, item, f"[[{name}]]") for item in given)


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    given = document.get(name, {})
    if not isinstance(given, dict) or not all(isinstance(item, dict) for item in given.values()):
        raise ConfigError(f"[{name}] must be written as [{name}.NAME]")
    return given


def _read_storage(given: Mapping[str, Any]) -> dict[str, StorageSection]:
    found = {}
    for name, values in given.items():
        where = f"[storage.{name}]"
        rest = {key: value for key, value in values.items() if key != "match"}
        options = {
            key: _parsed(parse_string, value, f"{where} {key}") for key, value in rest.items()
        }
        secrets = {key: value for key, value in options.items() if value.startswith(SECRET_KINDS)}
        found[name] = StorageSection(
            match=_parsed(_texts, values.get("match", ["**"]), f"{where} match"),
            options={key: value for key, value in options.items() if key not in secrets},
            secrets=secrets,
        )
    return found


def _read_budget(name: str, values: Mapping[str, Any]) -> BudgetSection:
    where = f"[budget.{name}]"
    budget: BudgetSection = _read(BudgetSection, values, where, name=name)
    if not budget.limits():
        hint = "it has bytes_per_day, core_hours_per_day or cost_per_day"
        raise ConfigError(f"{where} limits nothing", hint=hint)
    return budget


def _read_policies(given: Mapping[str, Any]) -> tuple[Policy, ...]:
    policies = [_read_policy(name, values) for name, values in given.items()]
    if "default" not in given:
        policies.append(Policy(name="default"))
    return tuple(policies)


def _read_policy(name: str, values: Mapping[str, Any]) -> Policy:
    where = f"[policy.{name}]"
    own = {item.name for item in fields(Policy) if "parse" in item.metadata}
    settings = {}
    for key, value in values.items():
        if key in own or key in {"check_after", "schedule"}:
            continue
        setting = _find_setting(key, own, where)
        settings[setting.name] = setting.in_its_unit(key, value)
    plain = {key: value for key, value in values.items() if key in own}
    return _read(  # type: ignore[no-any-return]
        Policy,
        plain,
        where,
        name=name,
        check_after=_read(CheckAfter, values.get("check_after", {}), f"{where} check_after"),
        schedule=_read_schedule(values.get("schedule", {}), f"{where} schedule"),
        settings=_checked_settings(settings, where),
    )


def _find_setting(key: str, own: set[str], where: str) -> Setting:
    try:
        return find_setting(key)
    except LakehandError as error:
        near = difflib.get_close_matches(key, [*own, "check_after", "schedule"], n=1)
        hint = f"did you mean {near[0]}?" if near else error.hint
        raise ConfigError(f"{where} has the unknown key {key!r}", hint=hint) from error


def _checked_settings(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    for name, value in settings.items():
        try:
            find_setting(name).read(value, where)
        except LakehandError as error:
            raise ConfigError(error.message, hint=error.hint) from error
    return dict(settings)


def _read_schedule(given: Any, where: str) -> dict[str, Schedule]:
    if not isinstance(given, dict):
        raise ConfigError(f"{where} is not a table of verbs and cron expressions")
    verbs = {verb.replace("-", "_"): expression for verb, expression in given.items()}
    _refuse_unknown(verbs, LANE_OF, where)
    return {
        verb: _parsed(Schedule.parse, expression, f"{where} {verb}")
        for verb, expression in verbs.items()
    }


def _parsed(parse: Callable[[Any], Any], value: Any, where: str) -> Any:
    if isinstance(value, bool) and parse is not parse_bool:
        raise ConfigError(f"{where} cannot be {value}: true and false are for what is on or off")
    try:
        return parse(value)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        if parse in (parse_secret, parse_remote, _hook_url):  # What stands there may be one.
            raise ConfigError(f"{where} cannot be used: {error}") from None
        raise ConfigError(f"{where} cannot be {value!r}: {error}") from error


def _refuse_unknown(given: Any, known: Any, where: str) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, list(known), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(sorted(known))}"
            raise ConfigError(f"{where} has the unknown key {key!r}", hint=hint)


def _check_names(config: ServiceConfig) -> None:
    for kind, names in {
        "source": [source.name for source in config.sources],
        "pool": [pool.name for pool in config.pools],
    }.items():
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"there are two [[{kind}]] sections named {twice!r}")
    pools = {pool.name for pool in config.pools}
    for policy in config.policies:
        if policy.pool not in pools:
            message = f"[policy.{policy.name}] names the pool {policy.pool!r}, which does not exist"
            raise ConfigError(message, hint=f"the pools are {', '.join(sorted(pools))}")
    _check_hooks(config.hooks)


def _check_hooks(hooks: tuple[HookSection, ...]) -> None:
    for number, hook in enumerate(hooks):
        if (hook.url, hook.command) in [(one.url, one.command) for one in hooks[:number]]:
            raise ConfigError("two [[hook]] sections call the same: name all events in one of them")
        if bool(hook.command) == bool(hook.url):
            raise ConfigError("a [[hook]] has either a command or a url")
        if hook.command and hook.secret:
            raise ConfigError("a [[hook]] with a command has no secret: it signs requests to a url")
