"""Trivial tasks, sent to every kind of runner."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from lakehand.engine.runner_contract import granted_cores
from lakehand.errors import RefusedError
from lakehand.model.work import GroupResult
from lakehand.observe import steps
from lakehand.runs import Run
from lakehand.storage import open_store


def double(payload: dict[str, Any]) -> dict[str, Any]:
    return {"doubled": payload["number"] * 2, "pid": os.getpid()}


def loaded_after_a_list(_payload: dict[str, Any]) -> dict[str, Any]:
    """Have Arrow make an array of a list, and say what is loaded then."""
    pa.array([1])
    return {"modules": [*sys.modules]}


def tell_loaded(payload: dict[str, Any]) -> dict[str, Any]:
    """Say whether a module is loaded that this one does not import."""
    return {"pid": os.getpid(), "is_loaded": payload["module"] in sys.modules}


def tell_surroundings(payload: dict[str, Any]) -> dict[str, Any]:
    """Say what the process has from the one that started it."""
    return {
        "pid": os.getpid(),
        "value": os.environ.get(payload["name"]),
        "directory": str(Path.cwd()),
        "temporary": tempfile.gettempdir(),
    }


def listen_to_steps(payload: dict[str, Any]) -> dict[str, Any]:
    """Begin to listen, and say whether somebody did before."""
    was_listening = steps._listener is not None
    steps.listen(lambda _step: None)
    return {"was_listening": was_listening}


def tell_cores(payload: dict[str, Any]) -> dict[str, Any]:
    return {"cores": granted_cores()}


def describe_process(payload: dict[str, Any]) -> dict[str, Any]:
    """Say which JVM this Python works for: the first ancestor that is a java."""
    time.sleep(payload["seconds"])
    parents = psutil.Process().parents()
    java = next((parent.pid for parent in parents if parent.name() == "java"), None)
    return {"java": java, "pid": os.getpid()}


def note_start(payload: dict[str, Any]) -> dict[str, Any]:
    """Leave a file, so that others see when and how often the task began."""
    folder = Path(payload["folder"])
    (folder / f"{payload['number']:03d}-{time.monotonic_ns()}").touch()
    time.sleep(payload.get("seconds", 0))
    return {"number": payload["number"]}


def wait_with_files(payload: dict[str, Any]) -> dict[str, Any]:
    """Wait with a file on local disk that goes when the task ends."""
    with tempfile.TemporaryDirectory(dir=payload["folder"]) as directory:
        (Path(directory) / "file").write_text("rows")
        time.sleep(600)
    return {}


def refuse_odd_numbers(payload: dict[str, Any]) -> dict[str, Any]:
    if payload["number"] % 2:
        message = f"{payload['number']} is odd"
        raise RefusedError(message, table="t", operation="double", feature="odd", hint="add one")
    return double(payload)


def fail_until(payload: dict[str, Any]) -> dict[str, Any]:
    """Fail with an error that nobody foresaw until it was tried often enough."""
    attempts = _count_attempt(payload)
    if attempts < payload["succeeds_at"]:
        raise ZeroDivisionError(f"attempt {attempts}")
    return {"attempts": attempts}


def die_until(payload: dict[str, Any]) -> dict[str, Any]:
    """Take the whole process down until it was tried often enough."""
    attempts = _count_attempt(payload)
    if attempts < payload["succeeds_at"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"attempts": attempts}


def kill_executor_until(payload: dict[str, Any]) -> dict[str, Any]:
    """Take the whole executor down, its JVM included, until it was tried often enough."""
    java = next(parent for parent in psutil.Process().parents() if parent.name() == "java")
    attempts = _count_attempt(payload, place=str(java.pid))
    if attempts < payload["succeeds_at"]:
        java.kill()
        time.sleep(60)
    return {"attempts": attempts}


def _count_attempt(payload: dict[str, Any], *, place: str = "") -> int:
    folder = Path(payload["folder"]) / str(payload["number"])
    folder.mkdir(exist_ok=True)
    (folder / str(time.monotonic_ns())).write_text(place)
    return len(list(folder.iterdir()))


def use_secret(payload: dict[str, Any], *, secret: str) -> dict[str, Any]:
    return {"length": len(secret)}


def return_a_set(payload: dict[str, Any]) -> dict[str, Any]:
    return {"numbers": {1, 2}}


def record_and_wait(payload: dict[str, Any]) -> dict[str, Any]:
    """Do what a rewriting task does with the ledger, in an order that the test controls."""
    run = Run.open(open_store(payload["root"]), payload["run"])
    if "wait_for" in payload:
        wait_for(Path(payload["wait_for"]))
    if payload.get("then_die"):
        os.kill(os.getpid(), signal.SIGKILL)
    result = run.record(GroupResult(group=payload["group"], attempt="0", outputs=()))
    if "then_touch" in payload:
        Path(payload["then_touch"]).touch()
    return result.to_json()


def wait_for(path: Path, *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear")
        time.sleep(0.05)
