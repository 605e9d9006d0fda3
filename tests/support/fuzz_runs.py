"""Verbs run on damaged copies of tables, in processes that may hang or die of it.

What must hold of every damage is said by `check_case`.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import logging
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lakehand
from lakehand.errors import LakehandError
from lakehand.planning.plan import Plan
from lakehand.runs import operation
from support.forks import run_forked
from support.fuzz_bases import BASES, make_base
from support.fuzz_mutations import (
    Mutation,
    json_mutations,
    parquet_mutations,
    random_mutation,
    text_mutations,
)
from support.tasks_here import TasksHere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: In a run that is not thorough, one damage in so many is followed by a certain verb.
_PAUSE = 8
#: After so long a run hangs, however busy the machine.
LIMIT_SECONDS = 90
#: After so long a process begins no further case, and another one goes on.
SLICE_SECONDS = 60
_LOG = "_delta_log"
#: What is damaged, and which files of a table that is.
TARGETS = {
    "commits": f"{_LOG}/*[0-9].json",
    "checkpoints": f"{_LOG}/*.checkpoint.*",
    "sidecars": f"{_LOG}/_sidecars/*",
    "last_checkpoint": f"{_LOG}/_last_checkpoint",
    "checksums": f"{_LOG}/*.crc",
    "data": "**/*.parquet",
    "deletion_vectors": "**/*.bin",
    "ledgers": "_lakehand/runs/**/*.json",
    "pins": "_lakehand/pins/*",
    "quarantines": "_lakehand/quarantine/**/*",
    "plans": "plan.json",
    "lance_manifests": "_versions/*",
    "lance_transactions": "_transactions/*",
    "lance_data": "data/*",
    "lance_deletions": "_deletions/*",
}
#: Where what a table says of itself is said once, and by nobody else.
_SAID_ONCE = (_LOG, "_versions/", "_transactions/", "data/", "_deletions/")
#: Of these one is called for each damage, in turn, after `to_arrow` and `verify`.
_VERBS: dict[str, Callable[[Any], Any]] = {
    "inspect": lambda table: table.inspect(by="id"),
    "history": lambda table: table.history(),
    "plan": lambda table: table.plan(min_files=2),
    "vacuum": lambda table: table.vacuum(dry_run=True),
    "maintain": lambda table: table.maintain(dry_run=True, min_files=2),
    "repair --dry-run": lambda table: table.repair(dry_run=True),
    "compact": lambda table: table.compact(min_files=2),
    "repair": lambda table: table.repair(deep=True),
}


@dataclass(frozen=True)
class Batch:
    """Some of the ways to damage one table: every `step`th from `start` on."""

    base: str
    #: One of TARGETS.
    target: str
    start: int
    count: int
    step: int = 1
    #: Seed of random damage; None: one way after the other.
    seed: int | None = None
    #: Whether `verify` and another verb are called each time, or now and then and where they must.
    thorough: bool = True

    def mutations(self, table: Path) -> Iterator[tuple[int, Mutation]]:
        paths = target_files(table, self.target)
        if self.seed is None:
            for number, mutation in enumerate(_systematic(table, paths)):
                if number >= self.start and (number - self.start) % self.step == 0:
                    yield number, mutation
            return
        for number in range(self.start, self.start + self.count):
            chance = random.Random(f"{self.base} {self.target} {self.seed} {number}")
            path = chance.choice(paths)
            yield number, random_mutation(path, (table / path).read_bytes(), chance)


def target_files(table: Path, target: str) -> list[str]:
    found = sorted(path.relative_to(table).as_posix() for path in table.glob(TARGETS[target]))
    if target == "data":
        return [path for path in found if not path.startswith(("_", "orphan"))]
    return [path for path in found if (table / path).is_file()]


def _systematic(table: Path, paths: Sequence[str]) -> Iterator[Mutation]:
    seen: set[tuple[Any, ...]] = set()
    for path in reversed(paths):
        data = (table / path).read_bytes()
        if data.startswith(b"PAR1"):
            yield from parquet_mutations(path, data)
        else:
            yield from json_mutations(path, data, seen)
            yield from text_mutations(path, data)


# In the child


def run_batch(root: str, batch: Batch, results: str) -> None:
    """Check the cases of a batch; write a line for each when it begins and when it has ended."""
    logging.disable()
    _have_tasks_run_here()
    original = Path(root) / batch.base
    rows = _rows_of(_open(original))
    deadline = time.monotonic() + SLICE_SECONDS
    with Path(results).open("a") as out:
        for number, mutation in itertools.islice(batch.mutations(original), batch.count):
            if time.monotonic() > deadline:
                return
            print(json.dumps({"case": number, "what": _words(mutation)}), file=out, flush=True)
            faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
            started = time.process_time()
            copy = Path(results).parent / "copy"
            problems = check_case(
                original, mutation, rows, copy, turn=number, thorough=batch.thorough
            )
            faulthandler.cancel_dump_traceback_later()
            seconds = round(time.process_time() - started, 2)
            print(
                json.dumps({"case": number, "problems": problems, "seconds": seconds}),
                file=out,
                flush=True,
            )


def _words(mutation: Mutation) -> str:
    return f"{mutation.path}: {mutation.what}"


def _have_tasks_run_here() -> None:
    operation.open_runner = lambda _settings, **_: TasksHere()


def _open(path: Path) -> Any:
    return lakehand.open_table(path, engine="local")


def check_case(
    original: Path,
    mutation: Mutation,
    rows: Counter[str],
    copy: Path,
    *,
    turn: int,
    thorough: bool = True,
) -> list[str]:
    """Return what lakehand does with a damaged table that it must not do.

    What must hold:

    - Every verb ends within the limit, with a report or with a LakehandError. No report holds an
      error of the code INTERNAL, and the process is not aborted.
    - If `to_arrow` returns rows, they are the rows from before the damage, or `verify` with `deep`
      has a finding. This is asked of every file but those that nobody could judge: the log of a
      table whose commits are not repeated in a checkpoint, where one valid commit may become
      another valid one (another partition value, an action less), and all files of Lance. Where a
      checkpoint of the newest version repeats the commits, each is held against the other, and so
      there is no such exception. Data files are written with page checksums.
    - `compact` commits no other rows than `to_arrow` returned before.

    Not looked at: metadata that show in no row, as the time or the metrics of a commit, and whether
    what `repair` trusts (commits rather than checkpoints) was the part that was not damaged.
    """
    problems: list[str] = []
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(original, copy)
    mutation.apply(copy)
    seen = _Seen(problems)
    found = seen.call("to_arrow", lambda: _rows_of(_open(copy)))
    has_changed = found is not None and found != rows
    report = None
    if thorough or has_changed or turn % _PAUSE == 0:
        report = seen.call("verify", lambda: _open(copy).verify(deep=True))
    if mutation.path == "plan.json":
        seen.call("compact --plan", lambda: _carry_out(copy))
    is_damaged = report is not None and report.outcome == "damaged"
    if has_changed and not is_damaged and _is_witnessed(original, mutation):
        problems.append(f"other rows, and verify says {report and report.outcome}")
    if not thorough and turn % _PAUSE != 1:
        return problems
    name = list(_VERBS)[(turn if thorough else turn // _PAUSE) % len(_VERBS)]
    seen.call(name, lambda: _VERBS[name](_open(copy)))
    if name == "compact" and found is not None and seen.failed is None:
        after = seen.call("to_arrow after compact", lambda: _rows_of(_open(copy)))
        if after != found:
            problems.append("compact changed the rows")
    return problems


class _Seen:
    """Calls verbs and keeps what they must not do."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self.failed: BaseException | None = None

    def call(self, name: str, verb: Callable[[], Any]) -> Any:
        self.failed = None
        try:
            answer = verb()
            if '"INTERNAL"' in json.dumps(getattr(answer, "errors", None), default=repr):
                self._problems.append(f"{name}: {answer.errors}")
        except LakehandError as error:
            self.failed = error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  also what Rust raises when it panics
            self.failed = error
            self._problems.append(f"{name}: {_last_frame(error)}")
        else:
            return answer
        return None


def _last_frame(error: BaseException) -> str:
    every = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in every if "lakehand/" in frame.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:200]}"


def _is_witnessed(original: Path, mutation: Mutation) -> bool:
    return BASES[original.name].is_witnessed or not mutation.path.startswith(_SAID_ONCE)


def _rows_of(table: Any) -> Counter[str]:
    return Counter(map(repr, table.to_arrow().to_pylist()))


def _carry_out(copy: Path) -> Any:
    return _open(copy).compact(plan=Plan.from_text((copy / "plan.json").read_bytes()))


# In the parent


@dataclass(frozen=True)
class Failure:
    """A case in which something happened that must not."""

    batch: Batch
    case: int
    what: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        batch = self.batch
        again = f"{batch.base} {batch.target} {self.case}"
        seed = "" if batch.seed is None else f" {batch.seed}"
        return "\n  ".join(
            [
                f"{batch.base}, {self.what}",
                *self.problems,
                f"again: cd tests && python -m support.fuzz_runs {again}{seed}",
            ]
        )


def run(root: Path, batch: Batch, scratch: Path) -> tuple[int, list[Failure]]:
    """Check a batch in processes of its own; return how many cases there were, and the failures."""
    scratch.mkdir(parents=True, exist_ok=True)
    results = scratch / "results.jsonl"
    results.unlink(missing_ok=True)
    count, failures = 0, []
    while True:
        ended = run_forked(run_batch, str(root), batch, str(results))
        done = _read(results)
        count += len(done)
        died = f"the process ended with {ended.returncode}: {ended.said[-3_000:]}"
        for case, (what, problems) in done.items():
            if problems is None or problems:
                failures.append(Failure(batch, case, what, tuple(problems or [died])))
        if ended.returncode and not done:
            raise RuntimeError(ended.said)
        left = batch.count - len(done)
        if not left or not done:
            return count, failures
        results.unlink()
        batch = replace(batch, start=max(done) + batch.step, count=left)


def _read(results: Path) -> dict[int, tuple[str, list[str] | None]]:
    found: dict[int, tuple[str, list[str] | None]] = {}
    for line in results.read_text().splitlines() if results.exists() else ():
        entry = json.loads(line)
        what = entry.get("what") or found[entry["case"]][0]
        found[entry["case"]] = (what, entry.get("problems"))
    return found


def main() -> None:
    """Run one case again, in this process; the arguments are BASE TARGET CASE [SEED]."""
    base, target, case, *seed = sys.argv[1:]
    with tempfile.TemporaryDirectory() as root:
        original = make_base(Path(root), base)
        batch = Batch(base, target, int(case), 1, seed=int(seed[0]) if seed else None)
        _have_tasks_run_here()
        number, mutation = next(batch.mutations(original))
        print(f"{number}: {_words(mutation)}")
        for problem in check_case(
            original, mutation, _rows_of(_open(original)), Path(root) / "copy", turn=number
        ):
            print(f"  {problem}")


if __name__ == "__main__":
    main()
