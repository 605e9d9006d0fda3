"""Write the reference pages from the code, so that they cannot disagree with it.

`--check` writes nothing and fails if a page is out of date.
"""

from __future__ import annotations

import ast
import inspect
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import lakehand
from lakehand import errors
from lakehand.assess import (
    clustering_advice,
    health_check,
    health_score,
    inspection,
    structure_check,
)
from lakehand.cli.main import COMMANDS, cli
from lakehand.formats.delta.protocol.features import BINDINGS, FEATURES
from lakehand.formats.delta.repair.findings import FINDINGS
from lakehand.hot import HotSnapshot, HotTable, HotTier
from lakehand.model import maintenance, reports, retention, verification, work
from lakehand.model.quantities import OneOf, format_bytes, format_duration
from lakehand.planning import plan as planning
from lakehand.planning import policy
from lakehand.service import client, client_values, many_tables
from lakehand.service.config import ServiceConfig
from lakehand.service.store import (
    budgets,
    records,
    service_state,
    table_registry,
    token_registry,
    worker_registry,
)
from lakehand.service.store.service_metrics import FAMILIES
from lakehand.settings import SETTINGS
from lakehand.sink.merging import MergeBuilder
from lakehand.sql import grammar, system_rows
from lakehand.sql import results as sql_results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import ModuleType

    from lakehand.settings import Setting

DOCS = Path(__file__).parent.parent / "docs"
HEADER = "<!-- Written by `make docs` from the code. Change the code, not this page. -->\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def code(text: object) -> str:
    return f"`{text}`"


# -- the command ------------------------------------------------------------------------------


def cli_page() -> Iterator[str]:
    yield "# Command line"
    yield (
        "Data is written to stdout; logs, progress and errors are written to stderr. With "
        "`--json`, stdout contains exactly one JSON document ([fields](json.md)); an error is the "
        'document `{"error": {...}}` ([codes](errors.md)).'
    )
    yield "## Exit codes"
    yield table(("code", "meaning"), EXIT_CODES)
    yield "## `lakehand`"
    yield from _command(cli, "lakehand")
    for name in sorted(COMMANDS):
        command = cli.get_command(click.Context(cli), name)
        yield f"## `lakehand {name}`"
        yield from _command(command, f"lakehand {name}")
        for part in command.commands.values() if isinstance(command, click.Group) else ():
            yield f"### `lakehand {name} {part.name}`"
            yield from _command(part, f"lakehand {name} {part.name}")
            for inner in part.commands.values() if isinstance(part, click.Group) else ():
                yield f"#### `lakehand {name} {part.name} {inner.name}`"
                yield from _command(inner, f"lakehand {name} {part.name} {inner.name}")


EXIT_CODES = (
    ("0", "success, or nothing to do"),
    ("1", "failure"),
    ("2", "invalid usage: an argument, a setting or a missing optional dependency"),
    ("3", "conflict with a concurrent writer; nothing was changed; retry"),
    ("4", "the proof failed; nothing was changed"),
    ("5", "unhealthy or damaged (`health`, `verify` and `repair` only)"),
    ("130, 143, 129", "stopped by Ctrl-C, SIGTERM or SIGHUP"),
)


def _command(command: click.Command, name: str) -> Iterator[str]:
    # A fixed width: the page must not depend on the terminal that it was written in.
    # The names of the help option as the group gives them to its commands: click keeps the first
    # option that it makes, so other names here would depend on what ran before.
    names = cli.context_settings["help_option_names"]
    context = click.Context(
        command, info_name=name, terminal_width=100, help_option_names=list(names)
    )
    usage = command.get_usage(context).removeprefix("Usage: ")
    yield f"```console\n$ {usage}\n```"
    yield inspect.cleandoc(command.help or "")
    options = list(_options(command, context))
    if len(options) > 1 or not isinstance(command, click.Group):  # a group has --help alone
        yield table(("option", "meaning"), options)


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        # The usage has the arguments; some versions of click have a record of them without words.
        if record is not None and record[1]:
            yield code(record[0]), record[1]


# -- settings ---------------------------------------------------------------------------------


def settings_page() -> Iterator[str]:
    yield "# Settings"
    yield (
        "Precedence: the call, the environment variable, the table property, the default. "
        "Unknown names are rejected with a suggestion. An unknown environment variable "
        "`LAKEHAND_*` is only a warning, logged once, because other versions and programs share "
        "the environment. Settings that are not booleans do not accept `True` or `False`. "
        "`lakehand settings` shows the current values and where each comes from."
    )
    for setting in SETTINGS:
        yield f"## `{setting.name}`"
        yield setting.help
        yield table(("", ""), _setting_rows(setting))


def _setting_rows(setting: Setting) -> Iterator[tuple[str, str]]:
    yield "default", _value(setting.default, setting.name)
    if setting.minimum is not None:
        yield "minimum", _value(setting.minimum, setting.name)
    if setting.maximum is not None:
        yield "maximum", _value(setting.maximum, setting.name)
    if isinstance(setting.parse, OneOf):
        yield "values", ", ".join(map(code, setting.parse.choices))
    yield "environment variable", code(setting.environment)
    if setting.table_property:
        yield "table property", code(setting.table_property)
    aliases = [code(alias) for alias in setting.aliases]
    aliases += [f"{code(alias)} (in {unit})" for alias, unit in setting.aliases_by_unit]
    aliases += [code(alias) for alias, _ in setting.aliases_by_value]
    if aliases:
        yield "aliases", ", ".join(aliases)


def _value(value: Any, name: str) -> str:
    if value is None:
        return "not set"
    if isinstance(value, timedelta):
        return format_duration(value)
    return format_bytes(value) if name.endswith("_bytes") else code(value)


# -- SQL --------------------------------------------------------------------------------------


def sql_page() -> Iterator[str]:
    yield "# SQL"
    yield (
        "Statements are explained in the [guide](../guides/sql.md). Clauses may be in any order, "
        "each at most once."
    )
    yield "## Clauses of statements that run an operation"
    rows = (
        (code(keyword), ", ".join(code(" ".join(words)) for words in clauses))
        for keyword, clauses in grammar.CLAUSES.items()
    )
    yield table(("statement", "clauses"), rows)
    yield "`WITH` has the arguments of the method and all [settings](settings.md)."
    with lakehand.ServiceClient(ServiceConfig(), store="sqlite://", create=True) as service:
        for name in system_rows.SYSTEM_TABLES:
            yield f"## `system.{name}`"
            schema = system_rows.system_rows(name, service, max_rows=1000).schema
            yield table(("column", "type"), ((code(one.name), str(one.type)) for one in schema))


# -- errors -----------------------------------------------------------------------------------


def errors_page() -> Iterator[str]:
    yield "# Errors"
    yield (
        "Every error is a `LakehandError` with `.code`, `.retryable`, `.message`, `.hint` and the "
        "attributes listed below; `lakehand.is_retryable(error)` says whether the same call may "
        "succeed later. Codes are stable. With `--json`, the command prints the same fields."
    )
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[-1]
    yield f"```text\n{tree}\n```"
    yield table(("error", "code", "exit", "retryable", "meaning"), _error_rows())
    yield "The command line has three more codes."
    yield table(
        ("code", "exit", "meaning"),
        (
            ("`USAGE_ERROR`", "2", "invalid command line"),
            ("`INTERRUPTED`", "130, 143, 129", "stopped by Ctrl-C, SIGTERM or SIGHUP"),
            ("`INTERNAL`", "1", "a bug in lakehand; please report it"),
        ),
    )


def _error_rows() -> Iterator[tuple[str, ...]]:
    for name in errors.__all__:
        kind = getattr(errors, name)
        if isinstance(kind, type):
            meaning = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
            retryable = "yes" if kind.retryable else ""
            yield code(name), code(kind.code), str(kind.exit_code), retryable, meaning


# -- JSON documents ---------------------------------------------------------------------------


def json_page() -> Iterator[str]:
    yield "# JSON documents"
    yield (
        "The fields listed here are stable; new ones may be added. The reports of the Python API "
        "have the same fields."
    )
    for heading, module, kind in DOCUMENTS:
        yield f"## {heading}"
        yield table(("field", "type", "meaning"), _fields(module, kind))
    yield "## `verify`, `repair`: names of findings"
    yield table(("name", "meaning", "what to do"), _finding_rows())
    yield "## How the health score is computed"
    yield inspect.cleandoc(health_score.__doc__ or "").split("\n\n", 1)[1]


def _finding_rows() -> Iterator[tuple[str, ...]]:
    for kind in FINDINGS.values():
        yield code(kind.name), kind.meaning, kind.hint
    yield code(structure_check.LOST_PIN), structure_check.MEANING, structure_check.HINT


DOCUMENTS: list[tuple[str, ModuleType, str]] = [
    ("`sql`, `POST /api/v1/sql`", sql_results, "SqlResult"),
    ("`inspect`", inspection, "Inspection"),
    ("`inspect`: each of `sizes[]`", inspection, "SizeRange"),
    ("`inspect`: `health`", health_score, "Health"),
    ("`inspect`: each of `health.reasons[]`", health_score, "Reason"),
    ("`inspect`: `layout`", inspection, "Layout"),
    ("`inspect`: each of `layout.by_column[]`", inspection, "ColumnLayout"),
    ("`advise`", clustering_advice, "Advice"),
    ("`advise`: each of `proposals[]`", clustering_advice, "Proposal"),
    ("`advise`: each of `columns[]`", clustering_advice, "AskedColumn"),
    ("`health`", health_check, "HealthReport"),
    ("`health`: each of `checks[]`", health_check, "Check"),
    ("`plan`", planning, "Plan"),
    ("`plan`: each of `groups[]`", planning, "PlannedGroup"),
    ("`plan`: `layout`", planning, "LayoutForecast"),
    ("`plan`: `policy`", policy, "CompactionPolicy"),
    ("`plan`, `compact`: `forecast`", reports, "Forecast"),
    ("`plan`, `compact`: `remaining`", reports, "Remaining"),
    ("`compact`, `cluster`, `delete`, `deduplicate`", reports, "ChangeReport"),
    ("`compact`, `cluster`: more fields", reports, "OperationReport"),
    ("`compact`: `average_file_bytes`", reports, "BeforeAfter"),
    ("`compact`: `groups`", reports, "GroupCounts"),
    ("`compact`: `methods`", reports, "MethodCounts"),
    ("`compact`: `proof`", work, "Proof"),
    ("`cluster`: more fields", reports, "ClusterReport"),
    ("`cluster`, `plan`: `skip_rate`, `overlap_depth`", reports, "Measured"),
    ("`cluster`: `zone_widths`", reports, "ZoneWidths"),
    ("`delete`, `deduplicate`, `upsert`, `merge` in Python: more fields", reports, "RowReport"),
    ("`delete`, `deduplicate`: more fields", reports, "DeletionReport"),
    ("`deduplicate`: more fields", reports, "DeduplicationReport"),
    ("`upsert` in Python: more fields", reports, "UpsertReport"),
    ("`merge` in Python: more fields", reports, "MergeReport"),
    ("`statistics`; `compact`: `statistics`", reports, "StatisticsReport"),
    ("`purge`", maintenance, "PurgeReport"),
    ("`purge`: each of `remaining[]`", maintenance, "Remains"),
    ("`verify`", verification, "Verification"),
    ("`verify`, `repair`: each of `findings[]`", verification, "Finding"),
    ("`verify`: each of `proofs[]`", verification, "ProofCheck"),
    ("`verify`: `inputs`, `outputs`", verification, "RowsSeen"),
    ("`repair`", verification, "RepairReport"),
    ("`repair`: each of `repairs[]`", verification, "Repair"),
    ("`repair`: each of `refused[]`", verification, "Refusal"),
    ("`repair`: each of `files_dropped[]`", verification, "DroppedFile"),
    ("`maintain`", maintenance, "MaintenanceReport"),
    ("`maintain`: each of `steps[]`", maintenance, "MaintenanceStep"),
    ("`maintain` on several tables", many_tables, "TablesReport"),
    ("`maintain` on several tables: each of `tables[]`", many_tables, "TableResult"),
    ("`vacuum`", retention, "VacuumReport"),
    ("`vacuum`: each of `holders[]`", retention, "Holder"),
    ("`vacuum`: `kept`", retention, "Kept"),
    ("`checkpoint`", reports, "CheckpointReport"),
    ("`properties set`, `unset`, `enable`, `cluster-by`", reports, "PropertiesReport"),
    ("`clean-logs`", maintenance, "LogCleanupReport"),
    ("`restore`", maintenance, "RestoreReport"),
    ("`history`: each of `commits[]`", reports, "HistoryEntry"),
    ("`service status`", service_state, "ServiceStatus"),
    ("`service status`: `pause`", service_state, "Pause"),
    ("`service token`", token_registry, "AccessToken"),
    ("`tables`: a table", table_registry, "RegisteredTable"),
    ("`tables`: more fields", client_values, "TableEntry"),
    ("`tables discover`: each of `sources[]`", client_values, "SourceDiscovery"),
    ("`jobs`: a job", records, "Job"),
    ("`workers list`: each of `workers[]`", worker_registry, "Worker"),
    ("`budgets`: each of `budgets[]`", budgets, "Budget"),
    ("`policies check`", client_values, "PolicyCheck"),
]


def _fields(module: ModuleType, kind: str) -> Iterator[tuple[str, str, str]]:
    """Read the fields of a dataclass with the `#:` comments above them, those of `Report` first."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    tree = ast.parse(source)
    node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind)
    is_report = any(isinstance(base, ast.Name) and base.id == "Report" for base in node.bases)
    found = {row[0]: row for row in _fields(reports, "Report")} if is_report else {}
    for entry in node.body:
        if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name):
            name = code(entry.target.id)
            kind_of = _TIME if _is_time(entry) else _json_type(entry.annotation)
            if (kind, entry.target.id) not in OMITTED:
                found[name] = name, kind_of, _comment_above(lines, entry.lineno)
    yield from found.values()


#: Fields that are not in the document, or whose own fields are instead.
OMITTED = {("TableEntry", "table"), ("SqlResult", "value")}
_TIME = "string, ISO 8601"


def _is_time(entry: ast.AnnAssign) -> bool:
    """Say whether a field is a time of the job store, which is a number there."""
    name, kind = ast.unparse(entry.target), ast.unparse(entry.annotation)
    return "float" in kind and (name.endswith(("_at", "_until")) or name == "not_before")


JSON_TYPES = {
    "pa.Table": "array of objects",
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "datetime": "string, ISO 8601",
    "None": "null",
    "Curve": "string",
    "JobState": "string",
    "Lane": "string",
    "Literal": "string",
    "Mapping": "object",
    "AccessRole": "string",
    "Any": "anything",
    "Method": "string",
    "Outcome": "string",
    "ProofKind": "string",
    "Soundness": "string",
    "StepOutcome": "string",
    "StepReport": "object",
    "Sequence": "array",
    "Strategy": "string",
    "TableOutcome": "string",
    "TableState": "string",
    "Unit": "string",
    "Verdict": "string",
    "Wish": "string",
    "WorkerWish": "string",
    "list": "array",
    "dict": "object",
}


def _json_type(annotation: ast.expr) -> str:
    """Say in words of JSON what an annotation means."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return f"{_json_type(left)} or {_json_type(right)}"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[member, *_])):
            return f"array of {_json_type(member)}"
        case ast.Subscript(value=ast.Name(id="Sequence"), slice=member):
            return f"array of {_json_type(member)}"
        case ast.Subscript(value=value):
            return _json_type(value)
    name = ast.unparse(annotation)
    return JSON_TYPES.get(name, f"`{name}`")


def _comment_above(lines: Sequence[str], line: int) -> str:
    comment: list[str] = []
    while lines[line - 2].strip().startswith("#:"):
        comment.insert(0, lines[line - 2].strip().removeprefix("#:").strip())
        line -= 1
    return " ".join(comment)


# -- features ---------------------------------------------------------------------------------


def features_page() -> Iterator[str]:
    yield "# Delta table features"
    yield (
        "What lakehand supports on a table that lists a feature. `unless active`: supported unless "
        "the table uses the feature. A table with a feature that is not in this list is rejected "
        "by name, before anything is written; `inspect` still works if it is a writer-only feature."
    )
    headings = ("feature", "read", "rewrite", "append", "inspect", "checkpoint", "vacuum", "why")
    yield table(headings, _feature_rows())
    yield "Some table properties and schemas are not supported either:"
    yield table(
        ("property", "refused", "why"),
        ((b.name, ", ".join(sorted(b.refuses)), b.reason) for b in BINDINGS),
    )
    yield "## Stores"
    yield (
        "What the tests of every change run on. Disk, memory, S3 and Azure pass the same tests of "
        "single requests: concurrent puts, listings, ranges, multipart uploads, deletions."
    )
    yield table(("store", "tested on", "beyond single requests"), _STORES)
    yield "## Catalogs"
    yield table(("catalog", "tested on", "with a mock server or not at all"), _CATALOGS)


_STORES = (
    (
        "local disk",
        "the disk of the machine, a full disk",
        "races of commits, kills at every step, every verb, Spark",
    ),
    ("`memory://`", "the process itself", "every verb; not Spark, which runs in other processes"),
    (
        "`s3://`",
        "versitygw 1.8",
        (
            "races of commits, kills, lost, slow and wrong responses, a server that dies during an "
            "upload, 1,025 parts, credentials that expire (also on Spark); compact (including "
            "copies on the server), cluster, sink, vacuum, repair, hot tables, Lance, "
            "Spark; not on Amazon's own S3"
        ),
    ),
    (
        "`s3://` with DynamoDB",
        "versitygw 1.8 and moto 5.2",
        (
            "races with delta-rs 1.5, each of the two killed between its steps; not with "
            "delta-spark and its log store for DynamoDB"
        ),
    ),
    ("`s3://` with PostgreSQL", "versitygw 1.8 and PostgreSQL", "races of commits"),
    (
        "`az://`, `abfss://`, `wasbs://`",
        "azurite 3.35",
        (
            "account key and shared access signature; races of commits, kills, lost responses; "
            "compact, delete, sink, vacuum; a write and a compaction on Spark; not a hierarchical "
            "namespace"
        ),
    ),
    (
        "`gs://`",
        "single requests and responses, without a server",
        (
            "the condition of put-if-absent and the meaning of each response; no test server "
            "supports all of the XML API that lakehand's client uses (fake-gcs-server ignores the "
            "header of the condition, and has no multipart uploads)"
        ),
    ),
    ("`r2://`", "not tested on a server", "it is S3 with another endpoint"),
)


_CATALOGS = (
    ("`hive:`", "the Hive metastore of Spark's own jars", "permissions and Kerberos"),
    ("`glue:`", "moto, which enforces `deploy/iam/glue.json`", "AWS itself"),
    (
        "`unity:`",
        "Unity Catalog built from its sources, if `LAKEHAND_UNITY_SERVER` names a server",
        "vended keys, views, permissions; Databricks",
    ),
    ("`lance:`", "a directory, and pylance's server of a namespace", "permissions"),
)


def _feature_rows() -> Iterator[tuple[str, ...]]:
    for feature in FEATURES.values():
        verdicts = (feature.read, feature.rewrite, feature.append, feature.inspect)
        verdicts += (feature.checkpoint, feature.vacuum)
        yield code(feature.name), *(str(verdict) for verdict in verdicts), feature.reason


# -- Python -----------------------------------------------------------------------------------


def python_page() -> Iterator[str]:
    yield "# Python"
    yield (
        "The public names of `lakehand`. The import is fast and starts no JVM. "
        "Reports have the fields of the [JSON documents](json.md)."
    )
    for name in sorted(lakehand.__all__, key=str.casefold):
        yield f"## `{name}`"
        value = getattr(lakehand, name)
        if isinstance(value, tuple):
            yield "All [settings](settings.md), each with its name, default, help and aliases."
            continue
        yield from _callable(name, value, is_error=name.endswith("Error"))
    yield from _methods_section("## Methods of `TableSink`", lakehand.TableSink)
    yield from _methods_section("## Methods of `Table`", lakehand.Table)
    yield from _methods_section("## Methods of `MergeBuilder`", MergeBuilder)
    yield from _methods_section("## Methods of `SqlResult`", sql_results.SqlResult)
    yield from _client_section()
    yield "## `lakehand.hot`"
    for kind in (HotTable, HotTier, HotSnapshot):
        yield f"### `{kind.__name__}`"
        yield inspect.cleandoc(kind.__doc__ or "")
        if kind is not HotSnapshot:  # only a hot table makes one
            yield f"```python\n{kind.__name__}{_signature(kind.__init__, result=False)}\n```"
            yield inspect.cleandoc(kind.__init__.__doc__ or "")
        for name, method in _methods(kind):
            yield f"#### `{kind.__name__}.{name}`"
            yield from _callable(name, method)


def _client_section() -> Iterator[str]:
    yield from _methods_section("## Methods of `ServiceClient`", lakehand.ServiceClient)
    for group, kind in client.PARTS.items():
        for name, method in _methods(kind):
            yield f"### `ServiceClient.{group}.{name}`"
            yield from _callable(name, method)


def _methods_section(heading: str, kind: type) -> Iterator[str]:
    yield heading
    for name, method in _methods(kind):
        yield f"### `{kind.__name__}.{name}`"
        yield from _callable(name, method)


def _callable(name: str, value: Any, *, is_error: bool = False) -> Iterator[str]:
    if inspect.isfunction(value):
        yield f"```python\n{name}{_signature(value)}\n```"
    yield inspect.cleandoc(value.__doc__ or "")
    if is_error:
        yield f"Code `{value.code}`; see [errors](errors.md)."


def _signature(function: Any, *, result: bool = True) -> str:
    """Write the signature as in the source, one parameter per line if it is long."""
    signature = inspect.signature(function)
    parameters = [_parameter(p) for p in signature.parameters.values() if p.name != "self"]
    kinds = [p.kind for p in signature.parameters.values() if p.name != "self"]
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = str(signature.return_annotation).replace("'", "")
    arrow = f" -> {returned}" if result else ""
    line = f"({', '.join(parameters)}){arrow}"
    if len(line) <= LINE_LENGTH:
        return line
    lines = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"(\n{lines}){arrow}"


LINE_LENGTH = 80


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = f"{stars.get(parameter.kind, '')}{parameter.name}: {parameter.annotation}"
    if parameter.default is inspect.Parameter.empty:
        return text
    default = repr(parameter.default)
    return f"{text} = {'...' if ' at 0x' in default else default}"


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    members = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
    for name, value in members.items():
        if inspect.isfunction(value) and not name.startswith("_"):
            yield name, value


# -- decisions --------------------------------------------------------------------------------


def metrics_page() -> Iterator[str]:
    yield "# Metrics"
    yield (
        "The metrics of `GET /metrics` ([guide](../guides/metrics.md)). All are read from the job "
        "store, so that every process with the web role tells the same."
    )
    headings = ("metric", "kind", "labels", "meaning")
    for title, is_single in (("Service", False), ("Single tables", True)):
        yield f"## {title}"
        if is_single:
            yield "Of the tables that `[metrics] per_table` selects."
        yield table(
            headings,
            (
                (code(one.full_name), one.kind, ", ".join(map(code, one.labels)), one.help)
                for one in FAMILIES
                if one.per_table == is_single
            ),
        )


def decisions_page() -> Iterator[str]:
    yield "# Decisions"
    yield (
        "One page per decision: what was decided, the reason, the measurement, and what was "
        "refused. A decision that turns out wrong gets a new page that says so; the old one stays."
    )
    yield "\n".join(_decisions())


def _decisions() -> Iterator[str]:
    for page in sorted((DOCS / "decisions").glob("0*.md")):
        number, _, title = page.read_text().partition("\n")[0].removeprefix("# ").partition(" ")
        yield f"- [{number.rstrip(':.')}]({page.name}) {title}"


# -- all of them ------------------------------------------------------------------------------

PAGES = {
    "reference/cli.md": cli_page,
    "reference/settings.md": settings_page,
    "reference/errors.md": errors_page,
    "reference/metrics.md": metrics_page,
    "reference/json.md": json_page,
    "reference/python.md": python_page,
    "reference/sql.md": sql_page,
    "reference/features.md": features_page,
    "decisions/README.md": decisions_page,
}


def render_pages() -> dict[str, str]:
    """Return the text of every page by its path below `docs`."""
    return {name: "\n\n".join((HEADER.strip(), *page())) + "\n" for name, page in PAGES.items()}


def outdated_pages() -> list[str]:
    """Return the names of pages that differ from what the code says."""
    return [
        name
        for name, text in render_pages().items()
        if not (DOCS / name).exists() or (DOCS / name).read_text() != text
    ]


def main() -> None:
    if "--check" in sys.argv[1:]:
        sys.exit(f"out of date: {', '.join(outdated_pages())}" if outdated_pages() else 0)
    for name, text in render_pages().items():
        (DOCS / name).write_text(text)


if __name__ == "__main__":
    main()
