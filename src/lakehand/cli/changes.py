"""`lakehand changes`: the change data feed of a table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table as Grid
from rich.text import Text

from lakehand.cli.output import print_document, print_screen
from lakehand.cli.shared_options import open_for_command, table_options
from lakehand.model.quantities import format_count, parse_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    import pyarrow as pa
    from rich.console import RenderableType

_TYPES = ("insert", "update_preimage", "update_postimage", "delete")


@click.command()
@table_options
@click.option("--from-version", type=click.IntRange(min=0), metavar="N", help="First version.")
@click.option("--to-version", type=click.IntRange(min=0), metavar="N",
              help="Last version, included. Default: the latest.")  # fmt: skip
@click.option("--from-timestamp", metavar="T",
              help="Begin with the first version at this time or later (ISO 8601).")  # fmt: skip
@click.option("--to-timestamp", metavar="T", help="End with the last version until this time.")
@click.option("--columns", metavar="A,B", help="Comma-separated columns. Default: all.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the changes to a .parquet or .arrow file.")  # fmt: skip
def changes(
    table: str,
    storage_options: dict[str, str],
    as_json: bool,  # noqa: FBT001
    columns: str | None,
    output: Path | None,
    **span: Any,
) -> None:
    """Show what each version of TABLE inserted, updated and deleted. Reads only.

    Shows the number of changed rows per version; --json prints the rows, --output saves them. A
    start is required. The table must have delta.enableChangeDataFeed set.
    """
    if span["from_version"] is None and span["from_timestamp"] is None:
        raise click.UsageError("give --from-version or --from-timestamp")
    write = None if output is None else _writer_for(output)
    opened = open_for_command(table, storage_options)
    names = None if columns is None else parse_names(columns)
    if output is None and not as_json:
        # Rows are only counted: one column is enough.
        names = opened.schema().names[:1]
    found = opened.changes(**span, columns=names)
    if output is not None and write is not None:
        count = write(found, output)
        print_screen(Text(f"{format_count(count, 'row')} written to {output}"))
    elif as_json:
        print_document({"table": opened.url}, records=("changes", _rows(found)))
    else:
        print_screen(*changes_screen(found))


def _writer_for(output: Path) -> Callable[[pa.RecordBatchReader, Path], int]:
    writers = {".parquet": _write_parquet, ".arrow": _write_arrow}
    if output.suffix not in writers:
        raise click.UsageError(f"{output}: name a .parquet or .arrow file")
    return writers[output.suffix]


def _write_parquet(found: pa.RecordBatchReader, output: Path) -> int:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(output, found.schema) as writer:
        return _write_all(found, writer.write_batch)


def _write_arrow(found: pa.RecordBatchReader, output: Path) -> int:
    import pyarrow as pa

    with pa.OSFile(str(output), "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
        return _write_all(found, writer.write_batch)


def _write_all(found: pa.RecordBatchReader, write: Callable[[pa.RecordBatch], None]) -> int:
    count = 0
    for batch in found:
        write(batch)
        count += batch.num_rows
    return count


def _rows(found: pa.RecordBatchReader) -> Iterator[Mapping[str, Any]]:
    for batch in found:
        yield from batch.to_pylist()


def _counts(found: pa.RecordBatchReader) -> dict[tuple[int, datetime], Counter[str]]:
    """Count the changes by version and time, and by type."""
    import pyarrow as pa

    names = found.schema.names[-3:]
    counts: dict[tuple[int, datetime], Counter[str]] = {}
    for batch in found:
        groups = pa.Table.from_batches([batch]).group_by(names).aggregate([([], "count_all")])
        for group in groups.to_pylist():
            kind, version, at = (group[name] for name in names)
            counts.setdefault((version, at), Counter())[kind] += group["count_all"]
    return counts


def changes_screen(found: pa.RecordBatchReader) -> Iterable[RenderableType]:
    """Show the number of changes, one line per version."""
    counts = _counts(found)
    if not counts:
        yield Text("no changes")
        return
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("version", "committed", *_TYPES):
        grid.add_column(name, justify="left" if name == "committed" else "right")
    for (version, at), by_type in counts.items():
        numbers = (f"{by_type[kind]:,}" for kind in _TYPES)
        grid.add_row(f"{version:,}", at.strftime("%Y-%m-%d %H:%M:%S"), *numbers)
    yield grid
