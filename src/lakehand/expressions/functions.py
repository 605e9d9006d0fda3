"""The functions that a predicate may use: those that depend on nothing but their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FUNCTIONS", "NULL_TESTS"]

#: Functions that ask whether their argument is null (True) or is not (False).
NULL_TESTS: Mapping[str, bool] = {"isnull": True, "isnotnull": False}

FUNCTIONS: tuple[type[exp.Func], ...] = (
    exp.Abs,
    exp.And,
    exp.ArrayContains,
    exp.ArraySize,
    exp.Case,
    exp.Cast,
    exp.Ceil,
    exp.Coalesce,
    exp.Concat,
    exp.Contains,
    exp.DateAdd,
    exp.DateDiff,
    exp.DateSub,
    exp.DateTrunc,
    exp.Day,
    exp.DayOfMonth,
    exp.DayOfWeek,
    exp.DayOfYear,
    exp.EndsWith,
    exp.Extract,
    exp.Floor,
    exp.Greatest,
    exp.Hour,
    exp.If,
    exp.IsNan,
    exp.Least,
    exp.Length,
    exp.Lower,
    exp.Minute,
    exp.Month,
    exp.Nullif,
    exp.Or,
    exp.Pow,
    exp.Quarter,
    exp.RegexpLike,
    exp.Round,
    exp.Second,
    exp.Sign,
    exp.StartsWith,
    exp.StrPosition,
    exp.Substring,
    exp.TimestampTrunc,
    exp.Trim,
    exp.TryCast,
    exp.TsOrDsAdd,
    exp.TsOrDsDiff,
    exp.TsOrDsToDate,
    exp.TsOrDsToTimestamp,
    exp.Upper,
    exp.Week,
    exp.WeekOfYear,
    exp.Year,
)
