"""Rows that a Spark session of lakehand's own writes to local disk are closed to other users."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
PROGRAM = """
import json, os
os.umask(0o022)
from lakehand.engine.session import open_session
from lakehand.settings import Settings

spark, _ = open_session(Settings({"master": "local[1]"}, environment={}))
spark.sparkContext.parallelize([(1, 2)]).groupByKey().collect()
manager = spark._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
places = [str(place) for place in manager.localDirs()]
print(json.dumps([places, [len(files) for _, _, files in os.walk(places[0])]]))
spark.stop()
"""


def test_no_other_user_can_enter_where_spark_shuffles(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
        timeout=240,
    )
    (place,), files = json.loads(done.stdout.splitlines()[-1])
    assert sum(files) > 0, "nothing was shuffled"
    own = tmp_path / f"lakehand-{os.geteuid()}"
    assert Path(place).is_relative_to(own)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
