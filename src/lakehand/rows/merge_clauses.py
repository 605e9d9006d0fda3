"""What a merge is asked to do: its join condition and its clauses, checked before a row is read.

The rules are those of Delta's MERGE INTO: of each kind the first clause whose condition holds
decides over a row, so only the last clause of a kind may have none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from lakehand.errors import UnknownColumnError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

#: Which rows a clause is about: pairs, rows of the source alone, or rows of the target alone.
ClauseKind = Literal["matched", "not_matched", "not_matched_by_source"]
ClauseAction = Literal["update", "delete", "insert"]

_WORDS: Mapping[ClauseKind, str] = {
    "matched": "WHEN MATCHED",
    "not_matched": "WHEN NOT MATCHED",
    "not_matched_by_source": "WHEN NOT MATCHED BY SOURCE",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeClause:
    """One WHEN clause."""

    kind: ClauseKind
    action: ClauseAction
    condition: str | None = None
    #: SQL expressions by the column that they are assigned to; None: all columns, by their names.
    values: Mapping[str, str] | None = None
    #: Columns that are left out where all are assigned.
    except_columns: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The clause as errors name it."""
        return f"{_WORDS[self.kind]} THEN {self.action.upper()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeSpec:
    """A join condition, the names of both tables in it, and the clauses in their order."""

    on: str
    target: str = "t"
    source: str = "s"
    clauses: tuple[MergeClause, ...] = ()

    @classmethod
    def of(cls, on: str | Sequence[str], *, target: str, source: str) -> MergeSpec:
        """Return a merge without clauses; `on` may be columns that both tables have."""
        for name, value in (("target_alias", target), ("source_alias", source)):
            if not value:
                raise ValidationError(f"{name} is a name", field=name, value=value)
        if target.lower() == source.lower():
            message = f"target and source have the same alias {target!r}"
            raise ValidationError(message, field="source_alias", value=source)
        if isinstance(on, str):
            text = on
        else:
            one, other = quoted(target), quoted(source)
            text = " AND ".join(f"{one}.{quoted(n)} = {other}.{quoted(n)}" for n in on)
        if not text.strip():
            raise ValidationError(
                "a merge needs a join condition",
                field="on",
                hint="give a condition such as 't.id = s.id', or a list of columns",
            )
        return cls(on=text, target=target, source=source)

    def with_clause(self, clause: MergeClause) -> MergeSpec:
        """Return the same merge with one more clause; ValidationError if it can never decide."""
        same = [known for known in self.clauses if known.kind == clause.kind]
        if any(known.condition is None for known in same):
            raise ValidationError(
                f"no row would reach this {_WORDS[clause.kind]} clause: the one before it has no"
                " condition",
                field="condition",
                hint="only the last clause of a kind may omit its condition",
            )
        return replace(self, clauses=(*self.clauses, clause))

    def of_kind(self, kind: ClauseKind) -> Iterator[tuple[int, MergeClause]]:
        """Yield the clauses of a kind with their numbers."""
        return ((n, clause) for n, clause in enumerate(self.clauses) if clause.kind == kind)

    @property
    def deletes_matches(self) -> bool:
        """Whether all that matches is deleted: then a row may match as often as it likes."""
        matched = [clause for _, clause in self.of_kind("matched")]
        return [(c.action, c.condition) for c in matched] == [("delete", None)]

    def require_clauses(self) -> None:
        """Raise ValidationError if there is nothing to do."""
        if not self.clauses:
            raise ValidationError(
                "the merge has no clause",
                field="clauses",
                hint="add one, such as when_matched_update_all() or when_not_matched_insert_all()",
            )

    def parameters(self) -> dict[str, Any]:
        """Return what the history of the table says of the merge."""
        return {"on": self.on, **{kind: self._described(kind) for kind in _WORDS}}

    def _described(self, kind: ClauseKind) -> list[dict[str, str]]:
        return [
            {
                **({"predicate": clause.condition} if clause.condition is not None else {}),
                "actionType": clause.action,
            }
            for _, clause in self.of_kind(kind)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns that a clause may assign, and those of the source that it may take them from."""

    target: tuple[str, ...]
    source: tuple[str, ...]
    #: Columns of the target that the table computes, if a row does not say their values.
    generated: Collection[str] = field(default_factory=frozenset)

    def assigned_by(self, clause: MergeClause, spec: MergeSpec) -> dict[str, str]:
        """Return the expressions of a clause by the exact names of the columns they are for."""
        if clause.values is None:
            return self._all(clause, spec)
        found: dict[str, str] = {}
        for given, text in clause.values.items():
            name = self._column(given, spec, clause)
            if name in found:
                message = f"{clause.text} assigns column {name!r} twice"
                raise ValidationError(message, field=given)
            if not isinstance(text, str):
                raise ValidationError(
                    f"{clause.text} assigns {text!r} to column {name!r}: a value is a string with"
                    " an SQL expression",
                    field=given,
                    value=text,
                    hint="write numbers as '1', strings as \"'eu'\", and nothing as 'NULL'",
                )
            found[name] = text
        if not found:
            raise ValidationError(f"{clause.text} assigns no column", field="values")
        return found

    def _column(self, given: str, spec: MergeSpec, clause: MergeClause) -> str:
        """Return the column that a name, with or without the target's, is of."""
        bare = unquoted(given)
        for candidate in (bare, _without_table(given, spec.target)):
            same = [name for name in self.target if name.lower() == (candidate or "").lower()]
            exact = [name for name in same if name == candidate]
            if len(same) == 1 or exact:
                return (exact or same)[0]
        if _is_nested(given, spec.target, self.target):
            raise ValidationError(
                f"{clause.text} assigns a field of a struct, {given!r}, which is not supported",
                field=given,
                hint="assign the whole column",
            )
        raise UnknownColumnError(given, list(self.target))

    def _all(self, clause: MergeClause, spec: MergeSpec) -> dict[str, str]:
        known = Counter(name.lower() for name in self.source)
        omitted = {name.lower() for name in clause.except_columns}
        for name in clause.except_columns:
            if name.lower() not in {column.lower() for column in self.target}:
                raise UnknownColumnError(name, list(self.target))
        wanted = [name for name in self.target if name.lower() not in omitted]
        missing = [n for n in wanted if n.lower() not in known and n not in self.generated]
        if missing:
            raise ValidationError(
                f"{clause.text} of all columns: the source has no column"
                f" {', '.join(map(repr, missing))}",
                field=missing[0],
                hint="nothing was written; add the columns to the source, list the columns to"
                " assign, or leave them out (except_columns)",
            )
        return {n: f"{quoted(spec.source)}.{quoted(n)}" for n in wanted if n.lower() in known}


def quoted(name: str) -> str:
    """Return a name as Spark SQL quotes it."""
    return f"`{name.replace('`', '``')}`"


def unquoted(name: str) -> str:
    """Return a name without the backticks around it."""
    is_quoted = len(name) > 1 and name[0] == name[-1] == "`"
    return name[1:-1].replace("``", "`") if is_quoted else name


def _without_table(name: str, table: str) -> str | None:
    first, dot, rest = name.partition(".")
    return unquoted(rest) if dot and unquoted(first).lower() == table.lower() else None


def _is_nested(name: str, table: str, columns: Sequence[str]) -> bool:
    rest = _without_table(name, table) or name
    return unquoted(rest.partition(".")[0]).lower() in {column.lower() for column in columns}
