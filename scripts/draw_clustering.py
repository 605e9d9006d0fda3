"""Draw docs/images/clustering.svg: the files of a table before and after `cluster`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

import lakehand
from lakehand.assess.layout_picture import Panel, draw_files, scales_of

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "clustering.svg"
COLUMNS = ("sold_at", "price")
ROWS, FILES = 400_000, 256
TARGET_BYTES = 20 * 1024


def main() -> None:
    with TemporaryDirectory() as place:
        table = lakehand.create_table(Path(place) / "sales", _sales(1, day=0).schema)
        for day in range(FILES):
            table.append(_sales(ROWS // FILES, day=day))
        before = table.snapshot(statistics=COLUMNS).files
        report = table.cluster(by=COLUMNS, target_file_bytes=TARGET_BYTES, engine="local")
        after = table.snapshot(statistics=COLUMNS).files
    panels = [
        Panel(title="as it was written", files=before, note=_skipped(report.skip_rate.before)),
        Panel(
            title="after cluster --by sold_at,price",
            files=after,
            note=_skipped(report.skip_rate.after),
        ),
    ]
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw_files(panels, scales_of(after, COLUMNS)))


def _sales(rows: int, *, day: int) -> pa.Table:
    """Return sales that arrive over up to two months after they were made, at skewed prices."""
    random = np.random.default_rng(day)
    minutes = day * 1440 - random.exponential(14 * 1440, rows).astype(np.int64)
    return pa.table(
        {
            "sold_at": pa.array(
                np.datetime64("2026-01-01T00:00", "us") + minutes * np.timedelta64(60, "s")
            ),
            "price": pa.array(np.round(random.lognormal(3, 1, rows), 2)),
            "item": pa.array(random.integers(0, 10_000, rows)),
        }
    )


def _skipped(rate: float) -> str:
    return f"questions skip {rate:.0%}"


if __name__ == "__main__":
    main()
