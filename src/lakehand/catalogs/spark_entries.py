"""How Spark, Athena, delta-rs and others write Delta tables into a Hive-like catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Parameters that name a table's format: Spark's, then those of Glue crawlers and Athena.
_FORMAT_PARAMETERS = ("spark.sql.sources.provider", "table_type", "classification")
#: Spark stores this as the location of a table whose real one is a parameter.
_PLACEHOLDER = "__PLACEHOLDER__"


def entry_format(parameters: Mapping[str, str], input_format: str | None) -> str:
    """Return the format of an entry in lower case; empty if nothing names it."""
    for name in _FORMAT_PARAMETERS:
        if value := parameters.get(name):
            return value.lower()
    return (input_format or "").rpartition(".")[2].lower()


def entry_location(
    location: str | None, details: Mapping[str, str], parameters: Mapping[str, str]
) -> str | None:
    """Return where the files are: Spark's `path`, else the location of the entry."""
    found = details.get("path") or parameters.get("location") or location
    return None if not found or _PLACEHOLDER in found else found
