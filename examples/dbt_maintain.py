"""Maintain the tables of the dbt models that the last `dbt run` built.

python3 dbt_maintain.py target/run_results.json --root s3://lake
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import lakehand


def built_tables(results: Path, root: str) -> list[str]:
    """Return where the tables are of the models that succeeded: ROOT/MODEL."""
    runs = json.loads(results.read_text())["results"]
    kinds = (run["unique_id"].split(".") for run in runs if run["status"] == "success")
    return [f"{root}/{name}" for kind, _project, name in kinds if kind == "model"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--root", required=True, help="directory or URL above the tables")
    options = parser.parse_args()
    report = lakehand.maintain_tables(built_tables(options.results, options.root), jobs=4)
    for result in report.tables:
        print(result.table, result.outcome, result.error or "")
    return int(any(result.error for result in report.tables))


if __name__ == "__main__":
    sys.exit(main())
