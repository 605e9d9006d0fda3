"""A failing trial made short: rounds are left out as long as it still fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from campaign.bench import Bench
    from campaign.rounds import Trial

#: When a process is killed is not the same twice, so a trial is tried more than once.
TRIES = 2
#: Most trials that are run to shorten one.
MOST_TRIALS = 40


def shrink(bench: Bench, trial: Trial) -> Trial:
    """Return a trial with as few rounds as still fail; the same one if it does not fail again."""
    left = [MOST_TRIALS]
    if not _fails(bench, trial, left):
        return trial
    number = len(trial.rounds) - 1
    while number >= 0 and left[0] > 0:
        shorter = trial.without(number)
        if shorter.rounds and _fails(bench, shorter, left):
            trial = shorter
        number = min(number - 1, len(trial.rounds) - 1)
    return trial


def _fails(bench: Bench, trial: Trial, left: list[int]) -> bool:
    for _ in range(TRIES):
        if left[0] <= 0:
            return False
        left[0] -= 1
        try:
            bench.run(trial)
        except Exception:  # noqa: BLE001  that is what is looked for
            return True
    return False


def write_script(folder: Path, trial: Trial, failure: str) -> Path:
    """Leave the trial and a script that runs it again, with its failure as a comment."""
    name = f"{trial.kind}-{trial.seed}"
    (folder / f"{name}.json").write_text(json.dumps(trial.to_json(), indent=1))
    script = folder / f"{name}.sh"
    said = "".join(f"# {line}\n" for line in failure.strip().splitlines()[-12:])
    replay = f'exec .venv/bin/python -m campaign --replay "{folder}/{name}.json"\n'
    head = "#!/bin/sh\n# From the root of the repository.\nexport PYTHONPATH=tests\n"
    script.write_text(head + said + replay)
    script.chmod(0o755)
    return script
