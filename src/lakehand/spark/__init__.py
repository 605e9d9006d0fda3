"""Tables as a data source of Spark: `format("lakehand")`, and frames of `Table.to_spark`."""

from __future__ import annotations

from lakehand.spark.source import LakehandSource

__all__ = ["LakehandSource"]
