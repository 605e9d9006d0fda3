"""Rows that a Spark session of lakehand's own writes to local disk are closed to other users."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from support import scenarios

pytestmark = pytest.mark.spark


@pytest.mark.only_on("spark")
def test_no_other_user_can_enter_where_spark_shuffles(host):
    files = host.call(scenarios.shuffle_and_find_files)

    own = Path(tempfile.gettempdir(), f"lakehand-{os.geteuid()}")
    assert files, "nothing was shuffled"
    assert all(Path(file).is_relative_to(own) for file in files)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
