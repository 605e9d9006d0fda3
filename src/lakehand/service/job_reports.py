"""What the report of a job says about its end: what was done, what is left, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def describe_end(report: Mapping[str, Any]) -> str:
    """Say in a few words what a job did.

    >>> describe_end({"outcome": "committed", "files_before": 9, "files_after": 1})
    'committed, 9 files became 1'
    """
    parts = [str(report.get("outcome", "done"))]
    done = [step["step"] for step in report.get("steps") or () if step["outcome"] == "committed"]
    if done:
        parts = [" and ".join(done)]
    parts += [
        f"{part['files_before']:,} files became {part['files_after']:,}"
        for part in reports_of(report)
        if part.get("files_before") and part.get("files_before") != part.get("files_after")
    ]
    if is_part(report):
        parts.append("stopped early, the rest is queued")
    elif left_new_files(report):
        parts.append("new files are left for later")
    return ", ".join(parts)


def reports_of(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a report and those of its steps."""
    steps = report.get("steps") or ()
    return [report, *(step.get("report") or {} for step in steps)]


def failed_step(report: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return why a step of `maintain` has failed, if one has; the others were taken."""
    failed = [step for step in report.get("steps") or () if step["outcome"] == "failed"]
    errors = [error for step in failed for error in (step["error"], *report["errors"]) if error]
    return next(iter(errors), None)


def is_part(report: Mapping[str, Any]) -> bool:
    """Say whether an operation was wound down, and something of it is left."""
    return bool(report.get("stopped_early"))


def is_slice_done(report: Mapping[str, Any]) -> bool:
    """Say whether files were rewritten, and others are left because of the limit of a run."""
    return any(
        part.get("outcome") == "committed" and (part.get("remaining") or {}).get("groups")
        for part in reports_of(report)
    )


def is_too_large(report: Mapping[str, Any]) -> bool:
    """Say whether all that could be rewritten is above the limit of the run."""
    return any(
        part.get("outcome") == "nothing_to_do"
        and (
            (part.get("remaining") or {}).get("groups")
            or (part.get("files_left") or {}).get("above_cap")
        )
        for part in reports_of(report)
    )


def left_new_files(report: Mapping[str, Any]) -> bool:
    """Say whether files were left because they had been written lately."""
    parts = reports_of(report)
    return any((part.get("files_left") or {}).get("recently_written") for part in parts)
