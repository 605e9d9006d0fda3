"""Vacuum against a model: whatever happened, every promised version has all of its files."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lakehand.retention.pins import Pin, put_pin, unpin
from lakehand.retention.quarantine import list_quarantines
from support.hand_written_logs import add
from support.lakes import Lake

RETENTION = timedelta(days=7)


class Retention(RuleBasedStateMachine):
    """A table over time; the model knows the files of every version, and when it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.lake = Lake("0.parquet")
        self.contents = [{"0.parquet"}]
        self.ended: list = []
        self.pins: dict[str, int] = {}
        self.written = 1

    def _committed(self, files: set[str]) -> None:
        self.ended.append(self.lake.clock.now())
        self.contents.append(files)

    @rule()
    def append(self) -> None:
        name = f"{self.written}.parquet"
        self.written += 1
        self.lake.put(name)
        self.lake.commit(add(name))
        self._committed(self.contents[-1] | {name})

    @rule(data=st.data())
    def remove(self, data) -> None:
        if self.contents[-1]:
            name = data.draw(st.sampled_from(sorted(self.contents[-1])))
            self.lake.remove(name)
            self._committed(self.contents[-1] - {name})

    @rule(hours=st.sampled_from([1, 23, 25, 100, 169, 400]))
    def wait(self, hours) -> None:
        self.lake.wait(hours=hours)

    @rule(grace=st.sampled_from(["24h", "0"]), expire=st.booleans())
    def vacuum(self, grace, expire) -> None:
        self.lake.vacuum(grace=grace, expire=expire, vacuum_entries="never")

    @rule(grace=st.sampled_from(["24h", "0"]))
    def vacuum_lite(self, grace) -> None:
        self.lake.vacuum(grace=grace, mode="lite", vacuum_entries="never")

    @rule()
    def undo(self) -> None:
        for entry in list_quarantines(self.lake.store)[:1]:
            self.lake.vacuum(undo=entry.id)

    @rule()
    def checkpoint(self) -> None:
        self.lake.table.checkpoint()

    @rule(data=st.data())
    def pin(self, data) -> None:
        version = data.draw(st.sampled_from(sorted(self._promised())))
        name = f"pin-{version}"
        if name not in self.pins:
            now = self.lake.clock.now()
            put_pin(self.lake.store, Pin(name=name, version=version, created_at=now))
            self.pins[name] = version

    @rule()
    def drop_a_pin(self) -> None:
        if self.pins:
            unpin(self.lake.store, self.pins.popitem()[0])

    def _promised(self) -> set[int]:
        since = self.lake.clock.now() - RETENTION
        young = {version for version, end in enumerate(self.ended) if end >= since}
        return young | {len(self.contents) - 1} | set(self.pins.values())

    @invariant()
    def every_promised_version_has_its_files(self) -> None:
        for version in self._promised():
            found = set(self.lake.table.snapshot(version=version).files["path"].to_pylist())
            assert found == self.contents[version]
            assert found <= self.lake.files

    def teardown(self) -> None:
        """In the end nothing is left that is not promised."""
        while self.pins:
            self.drop_a_pin()
        self.lake.wait(days=8)
        self.lake.vacuum(grace="0", vacuum_entries="never")
        assert self.lake.files == self.contents[-1]


TestRetention = Retention.TestCase
TestRetention.settings = settings(
    max_examples=8,
    stateful_step_count=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
