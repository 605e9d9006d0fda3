"""Run trials until the time is over, and write down what came of them.

python -m campaign --minutes 60              all kinds in turns, from where the last run ended
python -m campaign --kind s3 --minutes 10    one kind
python -m campaign --replay FILE             a stored trial again
python -m campaign --latency 240             how long so many commits take beside lakehand
python -m campaign --report                  add the ledger to the results and write the page
python -m campaign --report --ledger FILE    the same with the ledger of another machine

The results of all sittings are in benchmarks/results/campaign.json, with the seeds of their trials.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.bench import Bench
from campaign.latency import measure
from campaign.ledger import Entry, Ledger
from campaign.report import publish
from campaign.rounds import KINDS, Trial, draw_trial
from campaign.shrink import shrink, write_script

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".cache" / "campaign"
RESULTS = ROOT / "benchmarks" / "results" / "campaign.json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--trials", type=int, help="most trials of this run")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all of them")
    parser.add_argument(
        "--seed", type=int, default=0, help="first seed; those that were run are skipped"
    )
    parser.add_argument("--ledger", type=Path, default=HOME / "ledger.jsonl")
    parser.add_argument("--spark", action="store_true", help="let delta-spark read tables, too")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--latency", type=int, metavar="COMMITS")
    chosen = parser.parse_args(arguments)
    ledger = Ledger(chosen.ledger, published=RESULTS)
    if chosen.report:
        publish(ledger.publish().counts, ROOT / "docs" / "reliability.md")
        return 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakehand-campaign-")))
        if chosen.latency:
            print(json.dumps(measure(folder, chosen.latency), indent=1))
            return 0
        bench = stack.enter_context(_bench(folder, stack, with_spark=chosen.spark))
        if chosen.replay:
            print(bench.run(Trial.from_json(json.loads(chosen.replay.read_text()))))
            return 0
        return _run(bench, ledger, chosen)


def _bench(folder: Path, stack: ExitStack, *, with_spark: bool) -> Bench:
    if not with_spark:
        return Bench(folder)
    from support.oracle import Oracle

    scratch = folder / "oracle"
    scratch.mkdir()
    return Bench(folder, oracle=stack.enter_context(Oracle(scratch)))


def _run(bench: Bench, ledger: Ledger, chosen: argparse.Namespace) -> int:
    kinds = chosen.kind or list(KINDS)
    seeds = {kind: ledger.new_seeds(kind, chosen.seed) for kind in set(kinds)}
    deadline, failed = time.monotonic() + 60 * chosen.minutes, 0
    revision = _revision()
    for number, kind in enumerate(itertools.cycle(kinds)):
        if (
            time.monotonic() > deadline
            or number == chosen.trials
            or (failed and not chosen.keep_going)
        ):
            break
        trial = draw_trial(kind, next(seeds[kind]))
        entry = _run_one(bench, trial, revision)
        ledger.add(entry)
        failed += entry.failure is not None
        print(_line(entry), flush=True)
        if entry.failure is not None:
            _store_failure(bench, trial, entry.failure)
    return 1 if failed else 0


def _run_one(bench: Bench, trial: Trial, revision: str) -> Entry:
    started = time.monotonic()
    failure, counts = None, {}
    try:
        counts = dict(bench.run(trial))
    except Exception:  # noqa: BLE001  whatever it is, it is the result of this trial
        failure = traceback.format_exc()
    seconds = round(time.monotonic() - started, 2)
    return Entry(
        kind=trial.kind,
        seed=trial.seed,
        revision=revision,
        seconds=seconds,
        counts=counts,
        failure=failure,
    )


def _store_failure(bench: Bench, trial: Trial, failure: str) -> None:
    """Keep the table, make the trial as short as it can be, and leave a script that runs it."""
    folder = HOME / "failures"
    folder.mkdir(parents=True, exist_ok=True)
    # The next trial of this kind and seed begins with an empty directory.
    name = f"{trial.kind}-{trial.seed}"
    if (bench.folder / name).exists():
        shutil.copytree(bench.folder / name, folder / f"{name}-tables", dirs_exist_ok=True)
    short = shrink(bench, trial)
    script = write_script(folder, short, failure)
    print(f"  {len(trial.rounds)} rounds became {len(short.rounds)}: {script}", flush=True)


def _line(entry: Entry) -> str:
    counts = entry.counts
    told = "FAILED: " + entry.failure.strip().splitlines()[-1][:300] if entry.failure else "ok"
    numbers = [f"{counts.get(name, 0)} {name}" for name in ("operations", "kills", "faults")]
    return f"{entry.kind} {entry.seed}: {', '.join(numbers)}, {entry.seconds} s: {told}"


def _revision() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
