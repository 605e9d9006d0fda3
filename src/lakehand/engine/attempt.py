"""One attempt at one task, the same on every runner."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakehand.engine.cores import granting
from lakehand.errors import LakehandError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakehand.engine.base import Task


def attempt(function: Task, payload: str, *, cores: int = 1) -> dict[str, Any]:
    """Run `function` on a payload of JSON text; return its `result` or its typed `failure`.

    The task may run threads on so many `cores`. Exceptions that are not ours pass through:
    whether to try again is for the runner to decide.
    """
    return attempt_call(lambda: function(json.loads(payload)), cores=cores)


def attempt_call(call: Callable[[], Mapping[str, Any]], *, cores: int = 1) -> dict[str, Any]:
    """Do the same with a call that has what it needs already."""
    try:
        with granting(cores):
            result = dict(call())
    except LakehandError as error:
        return {"failure": json.loads(json.dumps(error.to_json(), default=str))}
    # A result that is not plain JSON is an error of the task, found here on every runner alike.
    return {"result": json.loads(json.dumps(result))}
