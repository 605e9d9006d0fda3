"""The grammar: which statements exist, and which clauses each of them has.

Clauses may be in any order, each at most once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakehand.errors import SqlError
from lakehand.sql import statements as sql
from lakehand.sql.merge_grammar import read_merge
from lakehand.sql.parser import Parser, duckdb_literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_WHERE, _WITH, _ORDER = ("WHERE",), ("WITH",), ("ORDER", "BY")
_Z_ORDER, _ZORDER, _FULL = ("Z_ORDER", "BY"), ("ZORDER", "BY"), ("FULL",)
_DRY_RUN, _ASYNC, _DEEP = ("DRY", "RUN"), ("ASYNC",), ("DEEP",)
_RECOMPUTE, _APPLY = ("RECOMPUTE", "STATISTICS"), ("APPLY",)
_COMMON = (_WITH, _DRY_RUN, _ASYNC)
#: The clauses of each statement that runs a verb, each by its words.
CLAUSES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "COMPACT": (_WHERE, _ORDER, _Z_ORDER, _ZORDER, *_COMMON),
    "OPTIMIZE": (_FULL, _WHERE, _ZORDER, _Z_ORDER, _RECOMPUTE, *_COMMON),
    "VACUUM": (("RETAIN",), ("LITE",), _FULL, *_COMMON),
    "PURGE": _COMMON,
    "REORG": (_APPLY, *_COMMON),
    "CHECKPOINT": (_WITH, _ASYNC),
    "VERIFY": (_DEEP, _WITH, _ASYNC),
    "REPAIR": (_DEEP, *_COMMON),
    "MAINTAIN": _COMMON,
    "DEDUPLICATE": (("BY",), ("EXACT",), ("KEEP",), *_COMMON),
    "RESTORE": (("TO",), _WITH, _DRY_RUN),
}
_EXPLAINED = ("COMPACT", "OPTIMIZE", "VACUUM", "PURGE", "REPAIR", "MAINTAIN", "DEDUPLICATE")
#: Settings of a table, or properties.
_ALTER = ("SET", "UNSET", "RESET", "CLUSTER", "PAUSE", "RESUME")
_OTHERS = (
    "MERGE",
    "DESCRIBE",
    "DESC",
    "ALTER",
    "SHOW",
    "EXPLAIN",
    "CANCEL",
    "RETRY",
    "SELECT",
    "WITH",
)
#: The words with which statements begin.
FIRST_WORDS: tuple[str, ...] = (*CLAUSES, "MERGE", *_OTHERS)
#: Words that follow the first one of a statement that is not Spark's.
_SECOND_WORDS: Mapping[str, tuple[str, ...]] = {
    "SHOW": tuple(name.upper() for name in sql.SHOWN if name != "tables"),
    "DESCRIBE": ("HISTORY", "DETAIL"),
    "DESC": ("HISTORY", "DETAIL"),
    "EXPLAIN": ("MAINTENANCE", *_EXPLAINED),
    "CANCEL": ("JOB",),
    "RETRY": ("JOB",),
}
#: Words that completion offers.
KEYWORDS: tuple[str, ...] = tuple(
    sorted(
        {word for clauses in CLAUSES.values() for words in clauses for word in words}
        | {*FIRST_WORDS, *_ALTER, *(name.upper() for name in sql.SHOWN), "TABLE", "JOB", "HISTORY"}
        | {"DETAIL", "TBLPROPERTIES", "MAINTENANCE", "OF", "VERSION", "TIMESTAMP", "AS", "HOURS"}
        | {"INTO", "USING", "ON", "WHEN", "MATCHED", "SOURCE", "THEN", "UPDATE", "DELETE", "INSERT"}
        | {"UNTIL", "NONE", "LIKE", "LIMIT", "FROM", "IF", "EXISTS", "FIRST", "LAST", "LATEST"}
    )
)


def parse_statement(
    text: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
) -> sql.Statement:
    """Parse one statement; SqlError says where it is wrong.

    `parameters` are the values of `?` (a list) or of `:name` (a dictionary).

    >>> parse_statement("VACUUM delta.`/lake/events` RETAIN 240 HOURS").options
    {'retention': '240h'}
    """
    return _Grammar(text, parameters).statement()


def is_known(text: str) -> bool:
    """Whether a statement begins as one of lakehand's, and not as another one of Spark.

    SELECT is lakehand's only where it names a system table, and SHOW TABLES is Spark's.
    """
    try:
        parser = Parser(text)
        first = parser.lexer.read()
        if first.is_word("SELECT", "WITH"):
            return "system." in text.lower()
        if first.is_word(*_SECOND_WORDS):
            return parser.lexer.peek().is_word(*_SECOND_WORDS[first.text.upper()])
        return _is_known_alteration(parser) if first.is_word("ALTER") else first.is_word(*CLAUSES)
    except SqlError:
        return False


def _is_known_alteration(parser: Parser) -> bool:
    """Whether ALTER changes what lakehand changes: Spark has other forms of it."""
    if not parser.take("TABLE"):
        return False
    parser.table()
    word = parser.lexer.read()
    after = parser.lexer.peek()
    if word.is_word("SET", "UNSET"):
        return after.is_word("TBLPROPERTIES") or (word.is_word("SET") and after.is_symbol("("))
    return word.is_word(*_ALTER)


class _Grammar(Parser):
    def __init__(
        self, text: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text, parameters)
        self._given = parameters
        #: Reads a clause after its words, and returns the options that it gives.
        self._readers: Mapping[tuple[str, ...], Callable[[], dict[str, Any]]] = {
            _WHERE: self._where,
            _WITH: self._with,
            _ORDER: lambda: {"sort_by": self.sort_terms()},
            _Z_ORDER: self._z_order,
            _ZORDER: self._z_order,
            _FULL: lambda: {"full": True},
            _DRY_RUN: lambda: {"dry_run": True},
            _ASYNC: dict,
            _DEEP: lambda: {"deep": True},
            _RECOMPUTE: dict,
            ("RETAIN",): self._retain,
            ("LITE",): lambda: {"mode": "lite"},
            _APPLY: self._apply,
            ("BY",): lambda: {"key": list(self.columns())},
            ("EXACT",): lambda: {"exact": True},
            ("KEEP",): self._keep,
            ("TO",): self._point_in_time,
        }
        self._clauses: tuple[tuple[str, ...], ...] = ()
        #: Clauses that were read.
        self._seen: set[tuple[str, ...]] = set()

    def statement(self) -> sql.Statement:
        token = self.lexer.peek()
        if token.kind == "end" or token.is_symbol(";"):
            self.fail("the statement is empty", token)
        if not token.is_word(*FIRST_WORDS):
            self.fail_expected(FIRST_WORDS, token)
        first = token.text.upper()
        if first in {"SELECT", "WITH"}:
            return sql.Query(text=self.lexer.text, parameters=self._given)
        self.lexer.read()
        if first in CLAUSES:
            return self._run_verb(first)
        readers: Mapping[str, Callable[[], sql.Statement]] = {
            "MERGE": lambda: read_merge(self),
            "ALTER": self._alter,
            "SHOW": self._show,
            "EXPLAIN": self._explain,
            "CANCEL": lambda: self._change_job("cancel"),
            "RETRY": lambda: self._change_job("retry"),
        }
        return readers.get(first, self._describe)()

    # -- verbs --------------------------------------------------------------------------------

    def _run_verb(self, keyword: str) -> sql.RunVerb:
        self.take("TABLE")
        table = self.table()
        self._clauses = CLAUSES[keyword]
        options = self._read_clauses()
        self.finish(" ".join(words) for words in self._clauses)
        verb = self._verb(keyword, options)
        is_async = _ASYNC in self._seen
        return sql.RunVerb(
            keyword=keyword, verb=verb, table=table, options=options, is_async=is_async
        )

    def _read_clauses(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        while True:
            token = self.lexer.peek()
            words = next((words for words in self._clauses if self.take(*words)), None)
            if words is None:
                return options
            if words in self._seen:
                self.fail(f"{' '.join(words)} is given twice", token)
            self._seen.add(words)
            for name, value in self._readers[words]().items():
                if name in options:
                    self.fail(f"{name} is given twice", token)
                options[name] = value

    def _verb(self, keyword: str, options: dict[str, Any]) -> str:
        """Return the method of a statement, and check that its clauses go together."""
        self._check_clauses(keyword, options)
        if keyword == "VACUUM" and _FULL in self._seen:
            del options["full"]
            options["mode"] = "full"
        if _RECOMPUTE in self._seen:
            return "statistics"
        if "by" in options:
            return "cluster"
        return {"REORG": "purge"}.get(keyword, keyword.lower())

    def _check_clauses(self, keyword: str, options: Mapping[str, Any]) -> None:
        here = self.lexer.peek()
        if keyword == "COMPACT" and "sort_by" in options and "by" in options:
            self.fail("a table is sorted by ORDER BY or by Z_ORDER BY, not both", here)
        if keyword == "RESTORE" and not options.keys() & {"version", "timestamp"}:
            self.fail_expected(["TO VERSION AS OF", "TO TIMESTAMP AS OF"], here)
        if keyword == "REORG" and _APPLY not in self._seen:
            self.fail_expected(["APPLY (PURGE)"], here)
        if keyword == "VACUUM" and _FULL in self._seen and "mode" in options:
            self.fail("a vacuum is LITE or FULL, not both", here)
        if _RECOMPUTE in self._seen and "by" in options:
            self.fail("RECOMPUTE STATISTICS rewrites no file: leave ZORDER BY out", here)

    def _where(self) -> dict[str, Any]:
        return {"where": self.condition(self._clauses)}

    def _with(self) -> dict[str, Any]:
        return self.options()

    def _z_order(self) -> dict[str, Any]:
        return {"by": list(self.columns()), "curve": "zorder"}

    def _retain(self) -> dict[str, Any]:
        token = self.lexer.read()
        is_number = token.kind in {"number", "parameter"} and type(token.value) in {int, float}
        if not is_number:
            self.fail("RETAIN has a number of hours", token)
        unit = self.choose("HOURS", "HOUR", "DAYS", "DAY")
        return {"retention": f"{token.value}{'h' if unit.startswith('HOUR') else 'd'}"}

    def _apply(self) -> dict[str, Any]:
        self.expect_symbol("(")
        self.expect("PURGE")
        self.expect_symbol(")")
        return {}

    def _keep(self) -> dict[str, Any]:
        keep = self.choose("FIRST", "LAST", "LATEST")
        if keep != "LATEST":
            return {"keep": keep.lower()}
        self.expect("BY")
        return {"keep": "latest", "order_by": self.column()}

    def _point_in_time(self) -> dict[str, Any]:
        kind = self.choose("VERSION", "TIMESTAMP")
        self.expect("AS", "OF")
        if kind == "VERSION":
            return {"version": self.whole_number("a version")}
        return {"timestamp": self.string("a timestamp")}

    # -- tables -------------------------------------------------------------------------------

    def _describe(self) -> sql.Describe:
        token = self.lexer.peek()
        if not token.is_word("HISTORY", "DETAIL"):
            hint = "DESCRIBE DETAIL t shows properties and size, DESCRIBE HISTORY t the commits"
            self.fail("expected HISTORY or DETAIL", token, hint=hint)
        what = self.choose("HISTORY", "DETAIL")
        self.take("TABLE")
        table = self.table()
        is_history = what == "HISTORY"
        limit = None
        if is_history and self.take("LIMIT"):
            limit = self.whole_number("the limit")
        self.finish(["LIMIT"] if is_history else [])
        return sql.Describe(what="history" if is_history else "detail", table=table, limit=limit)

    def _alter(self) -> sql.Statement:
        self.expect("TABLE")
        table = self.table()
        word = self.choose(*_ALTER)
        statement = self._alteration(table, word)
        self.finish()
        return statement

    def _alteration(self, table: sql.TableName, word: str) -> sql.Statement:
        if word in {"SET", "UNSET"} and self.take("TBLPROPERTIES"):
            return self._change_properties(table, word)
        if word == "SET":
            if not self.lexer.peek().is_symbol("("):
                self.fail_expected(["TBLPROPERTIES", "("], self.lexer.peek())
            return sql.ChangeSettings(table=table, settings=self.options())
        if word == "UNSET":
            self.fail_expected(["TBLPROPERTIES"], self.lexer.peek())
        if word == "RESET":
            is_all = not self.lexer.peek().is_symbol("(")
            return sql.ChangeSettings(table=table, removed=() if is_all else self.option_names())
        if word == "CLUSTER":
            self.expect("BY")
            return sql.ClusterBy(table=table, columns=() if self.take("NONE") else self.columns())
        until = self.string("the time") if word == "PAUSE" and self.take("UNTIL") else None
        return sql.PauseTable(table=table, is_paused=word == "PAUSE", until=until)

    def _change_properties(self, table: sql.TableName, word: str) -> sql.Statement:
        if word == "SET":
            given = self.options()
            return sql.SetProperties(
                table=table, properties={name: _property(value) for name, value in given.items()}
            )
        if_exists = self.take("IF")
        if if_exists:
            self.expect("EXISTS")
        return sql.UnsetProperties(table=table, names=self.option_names(), if_exists=if_exists)

    # -- the service --------------------------------------------------------------------------

    def _show(self) -> sql.Show:
        word = self.choose(*(name.upper() for name in sql.SHOWN))
        what = next(name for name in sql.SHOWN if name.upper() == word)
        like = self.string("a pattern") if self.take("LIKE") else None
        where = limit = None
        if self.take("WHERE"):
            where = self.condition([("LIMIT",)], spell=duckdb_literal)
        if self.take("LIMIT"):
            limit = self.whole_number("the limit")
        self.finish(["LIKE", "WHERE", "LIMIT"])
        return sql.Show(what=what, like=like, where=where, limit=limit)

    def _explain(self) -> sql.Explain:
        if self.take("MAINTENANCE"):
            self.expect("OF")
            table = self.table()
            self.finish()
            return sql.Explain(
                statement=sql.RunVerb(keyword="MAINTAIN", verb="maintain", table=table)
            )
        keyword = self.choose("MAINTENANCE", *_EXPLAINED)
        explained = self._run_verb(keyword)
        if explained.is_async:
            self.fail("EXPLAIN starts no job: leave ASYNC out", self.lexer.peek())
        return sql.Explain(statement=explained)

    def _change_job(self, action: Any) -> sql.ChangeJob:
        self.expect("JOB")
        job = self.whole_number("the number of a job")
        self.finish()
        return sql.ChangeJob(action=action, job=job)


def _property(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
