"""What trials share: a folder, servers, and how long verbs take."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from campaign.clocks import Clock, ClockedProcess
from campaign.power import Disk, PoweredProcess
from campaign.shapes import SHAPES
from campaign.spark_process import SparkDriver, SparkVerb
from campaign.stores import FlakyS3
from campaign.trials import Subject
from campaign.verbs import Durations, Place
from support.small_disk import small_disk

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from campaign.rounds import Trial
    from support.oracle import Oracle


_DISK_KIB = 64 * 1024
#: Left free while a verb runs.
_FREE_KIB = (0, 4, 16, 40, 120, 400)


@contextlib.contextmanager
def _nearly_full(root: Path, chance: random.Random) -> Iterator[None]:
    """Fill the disk but for a little; what a verb has written meanwhile stays."""
    ballast = root / "ballast"
    found = os.statvfs(root)
    size = found.f_bavail * found.f_frsize - chance.choice(_FREE_KIB) * 1024
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))
    try:
        yield
    finally:
        ballast.unlink()


class Bench:
    """What trials share: a folder, how long verbs take, servers."""

    def __init__(self, folder: Path, *, oracle: Oracle | None = None) -> None:
        self.folder, self._oracle = folder, oracle
        self._durations = Durations()
        self._stack = contextlib.ExitStack()
        self._s3: FlakyS3 | None = None
        self._spark: SparkDriver | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, trial: Trial) -> Counter[str]:
        """Run a trial and return what was counted. Raises TrialError."""
        folder = self.folder / f"{trial.kind}-{trial.seed}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with self._subject(trial, folder) as subject:
            subject.create()
            subject.run()
        shutil.rmtree(folder, ignore_errors=True)
        return subject.counts

    @contextlib.contextmanager
    def _subject(self, trial: Trial, folder: Path) -> Iterator[Subject]:
        more = {"oracle": self._oracle}
        if trial.kind == "s3":
            store = self._flaky_s3()
            store.begin(trial)
            uri = store.server.new_uri()
            place = Place(uri=uri, storage=store.spoiled_options)
            direct = Place(uri=uri, storage=store.options)
            subject = Subject(trial, place, folder, self._durations, writing=direct, **more)
            subject.disturb = store.restart
            subject.files = store.server.directory / uri.rpartition("/")[2]
            yield subject
            subject.counts["faults"] += store.faults
            return
        is_small = trial.kind == "disk"
        disk = (
            small_disk(folder / "disk", _DISK_KIB) if is_small else contextlib.nullcontext(folder)
        )
        with disk as root:
            place = Place(
                uri=str(root / ("table.lance" if trial.kind == "lance" else "table")),
                is_lance=trial.kind == "lance",
                has_workers=trial.kind == "processes",
                has_spark=trial.kind == "spark",
                fault_seed=trial.seed if trial.kind == "faults" else None,
                memory=str(folder / "synced") if trial.kind == "power" else None,
                shape=next((shape for shape in SHAPES if shape in trial.traits), None),
            )
            direct = replace(place, fault_seed=None, has_spark=False, memory=None)
            subject = Subject(trial, place, folder, self._durations, writing=direct, **more)
            if trial.commits:
                subject.add_writers()
            if place.has_spark:
                subject.start = partial(SparkVerb, self._spark_driver(trial))
            if place.memory is not None:
                power = Disk(Path(place.uri), Path(place.memory), random.Random(trial.seed))
                power.counts = subject.counts
                subject.start = partial(PoweredProcess, power)
            if trial.kind == "clocks":
                # One file for all trials: the warm process has it in its environment.
                chance = random.Random(trial.seed)
                clock = Clock(self.folder / "clock", chance, subject.counts)
                subject.start = partial(ClockedProcess, clock)
            if is_small:
                subject.shortage = partial(_nearly_full, root, random.Random(trial.seed))
            yield subject

    def _spark_driver(self, trial: Trial) -> SparkDriver:
        if self._spark is None:
            self._spark = self._stack.enter_context(SparkDriver(self.folder / "spark"))
        self._spark.chance.seed(trial.seed)
        return self._spark

    def _flaky_s3(self) -> FlakyS3:
        if self._s3 is None:
            self._s3 = self._stack.enter_context(FlakyS3(self.folder / "s3"))
        return self._s3
