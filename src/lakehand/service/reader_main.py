"""The process that reads whole tables for their summaries: their size is no load of the service.

It reads documents from its standard input, one per line, and answers each with a summary or an
error. Secrets come this way only, and are in no argument and no variable.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from lakehand.assess.inspection import FileFigures
from lakehand.errors import ValidationError, describe_error
from lakehand.formats.optional import SupportsSummaries
from lakehand.formats.registry import load_format
from lakehand.service.table_summaries import assess_figures
from lakehand.settings import Settings, parse_settings
from lakehand.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_table(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Read a table and return its summary; of one with very many files, what it means."""
    table_format = load_format(spec["format"])
    if not isinstance(table_format, SupportsSummaries):
        message = f"tables of the format {spec['format']} have no summaries"
        raise ValidationError(message, field="format")
    store = open_store(spec["url"], dict(spec["storage_options"]) or None)
    policy = parse_settings(spec["policy_settings"], "policy")
    settings = Settings(spec["settings"], policy=policy)
    seen = table_format.look(store)
    snapshot = table_format.open(store, settings=settings).snapshot()
    summary = table_format.summarize(snapshot, seen)
    answer = {
        "summary": summary.to_json(),
        "files": base64.b64encode(summary.files.encode()).decode(),
    }
    if not summary.mark:
        in_force = settings.with_properties(snapshot.properties)
        figures = FileFigures.of_snapshot(snapshot)
        answer["assessment"] = assess_figures(figures, summary, in_force).to_json()
    return answer


def main() -> None:
    """Answer until the input ends."""
    # What a library prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = read_table(json.loads(line))
        except Exception as error:  # noqa: BLE001  whatever it is, it is of one table
            answer = {"error": describe_error(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
