"""The former place of `lakehand.spark.LakehandSource`, which works until the next release."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name != "LakehandSource":
        raise AttributeError(f"module 'lakehand.sink.spark_source' has no attribute {name!r}")
    message = "lakehand.sink.spark_source.LakehandSource is now lakehand.spark.LakehandSource"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return import_module("lakehand.spark.source").LakehandSource
