"""Versions of rows as Lance stores them, held against what the library itself writes."""

from __future__ import annotations

import json

import lance
import numpy as np
import pyarrow as pa

from lakehand.formats.lance.reading import CREATED, UPDATED, version_runs


def stored(meta):
    return bytes(json.loads(meta.json())["inline"])


def test_runs_are_those_of_the_library(tmp_path):
    for number in range(3):
        rows = pa.table({"id": np.arange(200) + 200 * number})
        lance.write_dataset(rows, tmp_path, mode="append", enable_stable_row_ids=True)
    lance.dataset(tmp_path).update({"id": "id + 1000"}, where="id % 150 < 70")
    dataset = lance.dataset(tmp_path)
    for fragment in dataset.get_fragments():
        if fragment.metadata.deletion_file is None:
            scanner = dataset.scanner(columns=[CREATED, UPDATED], fragments=[fragment])
            rows, metadata = scanner.to_table(), fragment.metadata
            assert version_runs(rows[CREATED].to_numpy()) == stored(
                metadata.created_at_version_meta
            )
            assert version_runs(rows[UPDATED].to_numpy()) == stored(
                metadata.last_updated_at_version_meta
            )
