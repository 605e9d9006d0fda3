"""What goes from a log, what stays, and in which order."""

from __future__ import annotations

import io
import itertools
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest

from lakehand.errors import AccessDeniedError, RefusedError
from lakehand.formats.delta.checkpoints.checkpoint import write_checkpoint
from lakehand.formats.delta.checkpoints.last_checkpoint import read_last_checkpoint
from lakehand.formats.delta.log.listing import list_log
from lakehand.formats.delta.protocol.names import (
    classic_checkpoint_key,
    commit_key,
    parse_log_name,
    sidecar_key,
    version_prefix,
)
from lakehand.formats.delta.repair.log_findings import check_log
from lakehand.formats.delta.retention.log_cleanup import cutoff_at
from lakehand.formats.delta.table import DeltaTable
from lakehand.observe.clock import ManualClock
from lakehand.retention.log_maintenance import clean_logs
from lakehand.retention.pins import Pin, put_pin
from lakehand.storage import MemoryStore
from support.checkpoints import json_lines, put_checkpoint
from support.hand_written_logs import add, compaction_key, metadata, protocol, put_commit

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_names = itertools.count()


class Log:
    """A table with one commit a day, at noon, which adds a file with the version as its name."""

    def __init__(
        self,
        days: int,
        *,
        folded: tuple[int, ...] = (),
        reader: tuple[str, ...] = (),
        **properties: str,
    ) -> None:
        self.clock = ManualClock(NOON)
        self.store = MemoryStore(f"cleaned-{next(_names)}", clock=self.clock)
        configuration = {f"delta.{name}": value for name, value in properties.items()}
        for version in range(days):
            first = [protocol(reader=reader), metadata(properties=configuration)]
            start = first if version == 0 else []
            put_commit(self.store, version, *start, add(f"{version}.parquet"))
            if version in folded:
                write_checkpoint(self.store, version=version, clock=self.clock)
            self.wait(days=1)

    def wait(self, **duration: float) -> None:
        self.clock.advance(timedelta(**duration).total_seconds())

    def clean(self, **options):
        table = DeltaTable(self.store, clock=self.clock)
        return clean_logs(table, clock=self.clock, **options)

    def joined(self, name) -> bytes:
        """Return the lines of all commits that a compaction stands for."""
        versions = range(getattr(name, "first", 0), getattr(name, "last", -1) + 1)
        return b"\n".join(self.store.get(commit_key(version)) for version in versions) or b"?"

    @property
    def commits(self) -> list[int]:
        return [v for v in range(200) if self.store.exists(commit_key(v))]

    def files_at(self, version: int | None = None) -> set[str]:
        snapshot = DeltaTable(self.store, clock=self.clock).snapshot(version=version)
        return set(snapshot.files["path"].to_pylist())


class TimedLog(Log):
    """The same table, with the time of each version in its commit and all objects written today."""

    def __init__(self, days: int, *, folded: tuple[int, ...]) -> None:
        self.clock = ManualClock(NOON + timedelta(days=days))
        self.store = MemoryStore(f"timed-{next(_names)}", clock=self.clock)
        table = metadata(properties={"delta.enableInCommitTimestamps": "true"})
        for version in range(days):
            at = int((NOON + timedelta(days=version)).timestamp() * 1000)
            start = [protocol("inCommitTimestamp"), table] if version == 0 else []
            info = {"commitInfo": {"inCommitTimestamp": at, "timestamp": at}}
            lines = [info, *start, add(f"{version}.parquet")]
            self.store.put(commit_key(version), json_lines(lines))
            if version in folded:
                write_checkpoint(self.store, version=version, clock=self.clock)


def names(*versions: int) -> set[str]:
    return {f"{version}.parquet" for version in versions}


def test_the_cutoff_is_midnight_so_that_cleanups_of_one_day_agree():
    assert cutoff_at(NOON, timedelta(days=1, hours=3)) == datetime(2025, 12, 31, tzinfo=UTC)


def test_all_below_the_last_checkpoint_that_is_old_enough_goes():
    log = Log(40, folded=(3, 7, 30))
    report = log.clean()
    # Today is day 40: version 9 of day 9 was in force at the cutoff, the midnight of day 10.
    assert (report.outcome, report.oldest_version, report.version) == ("committed", 7, 39)
    assert log.commits == list(range(7, 40))
    assert not log.store.exists(classic_checkpoint_key(3))
    assert log.files_at(9) == names(*range(10))
    assert log.files_at() == names(*range(40))


def test_a_log_without_an_old_checkpoint_stays_whole():
    log = Log(40, folded=(30,))
    report = log.clean()
    assert (report.outcome, report.files) == ("nothing_to_do", ())
    assert "no checkpoint" in report.reason
    assert log.commits == list(range(40))


def test_a_young_log_stays_whole():
    log = Log(10, folded=(5,))
    assert (log.clean().reason, log.commits) == ("no version is old enough", list(range(10)))


@pytest.mark.parametrize(
    ("wish", "oldest"),
    [
        ({"keep_versions": 35}, 3),
        ({"keep_versions": 2}, 7),
        ({"keep_checkpoints": 3}, 3),
        ({"keep_checkpoints": 1}, 7),
        ({"keep_checkpoints": 9}, 0),
    ],
)
def test_wishes_keep_more_and_never_less(wish, oldest):
    log = Log(40, folded=(3, 7, 30))
    assert log.clean(**wish).oldest_version == oldest
    assert log.commits[0] == oldest


def test_a_pinned_version_stays_readable():
    log = Log(40, folded=(3, 7, 30))
    put_pin(log.store, Pin(name="audit", version=5, created_at=NOON))
    report = log.clean()
    assert (report.oldest_version, report.reason) == (3, "version 5 is pinned")
    assert log.files_at(5) == names(*range(6))


def test_a_dry_run_names_what_a_run_deletes_and_deletes_nothing():
    log = Log(40, folded=(3, 7, 30))
    before = {info.key for info in log.store.list()}
    dry = log.clean(dry_run=True)
    assert (dry.outcome, dry.files_deleted) == ("dry_run", 8)
    assert {info.key for info in log.store.list()} == before
    assert log.clean().files == dry.files


def test_a_table_that_forbids_cleaning_is_left_alone_unless_somebody_insists():
    log = Log(40, folded=(7,), enableExpiredLogCleanup="false")
    assert "enableExpiredLogCleanup" in log.clean().reason
    assert log.commits[0] == 0
    assert log.clean(even_if_disabled=True).oldest_version == 7


def test_the_retention_of_the_table_counts():
    log = Log(40, folded=(3, 7, 30), logRetentionDuration="interval 5 days")
    assert log.clean().oldest_version == 30


def test_a_damaged_checkpoint_is_no_boundary():
    log = Log(40, folded=(3, 7))
    log.store.put(classic_checkpoint_key(7), b"PAR1 and nothing else PAR1")
    report = log.clean()
    assert (report.oldest_version, log.commits[0]) == (3, 3)
    assert "version 7 is damaged" in report.reason


def test_a_checkpoint_that_lacks_a_file_of_the_commits_is_no_boundary():
    log = Log(40, folded=(3,))
    put_checkpoint(log.store, 7, [protocol(), metadata(), add("0.parquet")])
    assert (log.clean().oldest_version, log.commits[0]) == (3, 3)
    assert log.files_at(6) == names(*range(7))


def test_checksums_and_compactions_and_parts_below_the_boundary_go_too():
    log = Log(40, folded=(7,))
    gone = [f"{version_prefix(2)}.crc", compaction_key(2, 4), compaction_key(7, 9)]
    gone.append(f"{version_prefix(4)}.checkpoint.0000000001.0000000002.parquet")
    kept = [f"{version_prefix(7)}.crc", compaction_key(8, 9)]
    for key in (*gone, *kept):
        log.store.put(key, log.joined(parse_log_name(key)))
    assert set(gone) <= set(log.clean().files)
    assert [log.store.exists(key) for key in kept] == [True, True]


def test_files_that_mean_nothing_to_us_stay():
    log = Log(40, folded=(7,))
    log.store.put("_delta_log/_commits/00000000000000000001.uuid.json", b"{}")
    log.store.put("_delta_log/00000000000000000001.notes", b"")
    assert not any("notes" in file or "_commits" in file for file in log.clean().files)


def test_temporary_files_go_when_a_day_old():
    log = Log(2)
    old = "_delta_log/_commit_0d9b7a4e-1111-2222-3333-444455556666.json.tmp"
    log.store.put(old, b"")
    log.wait(hours=23)
    assert log.clean().files == ()
    log.wait(hours=2)
    assert log.clean().files == (old,)


def test_sidecars_go_only_if_old_and_no_checkpoint_that_is_left_names_them():
    log = Log(40)
    actions = [protocol(), metadata(), *(add(f"{v}.parquet") for v in range(8))]
    _, *sidecars = put_checkpoint(log.store, 7, actions, "v2-json")
    log.store.put(sidecar_key("orphan.parquet"), b"")
    log.wait(days=2)
    log.store.put(sidecar_key("young.parquet"), b"")
    assert sidecar_key("orphan.parquet") in log.clean().files
    left = {info.key for info in log.store.list("_delta_log/_sidecars/")}
    assert left == {*sidecars, sidecar_key("young.parquet")}
    assert log.files_at() == names(*range(40))


def test_no_sidecar_goes_while_a_checkpoint_cannot_be_read():
    log = Log(40)
    log.store.put(sidecar_key("orphan.parquet"), b"")
    log.store.put(classic_checkpoint_key(30), b"damaged")
    log.wait(days=2)
    assert log.clean().files == ()


@pytest.mark.parametrize("kind", ["v2-json", "v2-parquet", "v2-inline"])
def test_readers_that_know_no_v2_checkpoints_find_one_under_the_old_name(kind):
    log = Log(40, reader=("v2Checkpoint",))
    files = [add(f"{version}.parquet") for version in range(8)]
    put_checkpoint(log.store, 7, [protocol(reader=["v2Checkpoint"]), metadata(), *files], kind)
    assert log.clean().oldest_version == 7
    copy = pq.read_table(io.BytesIO(log.store.get(classic_checkpoint_key(7)))).to_pylist()
    found = [kind for row in copy for kind, value in row.items() if value is not None]
    assert {"protocol", "metaData", "checkpointMetadata"} <= set(found)
    [stated] = [row["protocol"] for row in copy if row["protocol"]]
    assert stated["readerFeatures"] == ["v2Checkpoint"]
    # Both checkpoints say the same, whichever a reader takes.
    top = next(c for c in list_log(log.store).checkpoints if c.kind == "v2").keys
    log.store.delete(top)
    assert log.files_at() == names(*range(40))
    assert check_log(log.store, now=datetime.now(UTC)).findings == ()


def test_a_checkpoint_of_the_old_kind_needs_no_copy():
    log = Log(40, folded=(7,))
    before = log.store.get(classic_checkpoint_key(7))
    log.clean()
    assert log.store.get(classic_checkpoint_key(7)) == before


@pytest.mark.parametrize(
    "properties",
    [
        {"universalFormat.enabledFormats": "iceberg"},
        {"compatibility.symlinkFormatManifest.enabled": "true"},
    ],
)
def test_a_log_that_other_formats_are_made_from_is_cleaned_only_if_somebody_insists(properties):
    log = Log(40, folded=(7,), **properties)
    with pytest.raises(RefusedError, match="stale"):
        log.clean()
    assert log.commits == list(range(40))
    assert log.clean(even_if_disabled=True).oldest_version == 7


def test_versions_are_as_old_as_their_commits_say_and_not_as_storage_says():
    """All objects are young here, as after a copy of the table; the commits know better."""
    log = TimedLog(40, folded=(3, 7, 30))
    assert (log.clean().oldest_version, log.commits[0]) == (7, 7)
    assert log.files_at() == names(*range(40))


def test_a_pointer_to_a_checkpoint_that_goes_is_moved_first():
    log = Log(40, folded=(3,))
    hint = log.store.get("_delta_log/_last_checkpoint")
    write_checkpoint(log.store, version=7, clock=log.clock)
    log.store.put("_delta_log/_last_checkpoint", hint)
    log.clean()
    assert read_last_checkpoint(log.store).version == 7


class StoppingStore(MemoryStore):
    """Dies before one of its deletes, as a process does that is killed."""

    calls_left = 0

    def delete(self, keys):
        if self.calls_left == 0:
            raise AccessDeniedError("stopped here")
        self.calls_left -= 1
        return super().delete(keys)


@pytest.mark.parametrize("calls", range(6))
def test_wherever_a_cleanup_stops_what_is_left_is_readable_and_the_next_one_ends_it(calls):
    log = Log(40, folded=(3, 5, 7, 30))
    log.store.__class__ = StoppingStore
    log.store.calls_left = calls
    with pytest.raises(AccessDeniedError):
        log.clean()
    oldest = DeltaTable(log.store).history()[-1].version
    readable = [v for v in range(40) if v >= _earliest(log)]
    assert all(log.files_at(version) == names(*range(version + 1)) for version in readable[::5])
    assert oldest <= readable[0] <= 7
    log.store.calls_left = -1
    assert log.clean().oldest_version == 7
    assert log.commits == list(range(7, 40))


def _earliest(log: Log) -> int:
    from lakehand.formats.delta.log.listing import list_log

    return list_log(log.store).earliest_version


def test_what_goes_first_is_what_old_versions_stand_on():
    log = Log(40, folded=(3, 7))
    versions = [parse_log_name(file).version for file in log.clean().files]
    assert versions == sorted(versions)
