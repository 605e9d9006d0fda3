"""Short trials of the fault campaign, and what it does when rows are lost."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from campaign.bench import Bench
from campaign.latency import measure
from campaign.ledger import Entry, Ledger, Results
from campaign.power import Disk, remember
from campaign.report import describe, publish
from campaign.rounds import BLOCK_IDS, BLOCK_ROWS, KINDS, Round, Trial, Verb, draw_trial
from campaign.shrink import shrink, write_script
from campaign.trials import Subject, TrialError
from campaign.warm import warm_process
from campaign.writers import Writers


@pytest.fixture
def bench(tmp_path):
    with Bench(tmp_path) as made:
        yield made


def short_trial(kind):
    trial = draw_trial(kind, 3, rounds=3)
    return replace(trial, rounds=tuple(replace(one, again=0) for one in trial.rounds))


@pytest.mark.parametrize("kind", ["local", "faults", "power", "disk", "lance"])
def test_a_short_trial_finds_all_rows(bench, kind):
    counts = bench.run(short_trial(kind))

    assert counts["operations"] >= 3
    assert counts["rows_compared"] > 0


def test_writers_are_killed_beside_operations_and_no_commit_is_lost_or_doubled(bench):
    trial = replace(short_trial("writers"), traits=(), commits=40)
    counts = bench.run(trial)

    assert counts["writer_commits"] >= 3 * 40
    assert counts["writer_kills"] + counts["kills"] > 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda ids, values: (ids[1:], values[1:]), "there in part"),
        (lambda ids, values: (ids[BLOCK_ROWS:], values[BLOCK_ROWS:]), "acknowledged .* missing"),
        (lambda ids, values: (ids, values + 1), "changed"),
        (lambda ids, values: (np.tile(ids, 2), np.tile(values, 2)), "twice"),
        (
            lambda ids, _: (more := np.append(ids, ids + 90 * BLOCK_IDS), more % 7),
            "nobody made",
        ),
    ],
)
def test_rows_of_writers_that_are_lost_doubled_or_changed_are_found(
    bench, monkeypatch, change, error
):
    """The rows that a reader finds are changed, as a defect of a rewrite would."""
    trial = Trial(kind="writers", seed=1, traits=(), rounds=(), commits=3)
    found = Writers.errors

    def after_a_defect(self, ids, values, acknowledged, *, is_last):
        return found(self, *change(ids, values), acknowledged, is_last=is_last)

    monkeypatch.setattr(Writers, "errors", after_a_defect)

    with pytest.raises(TrialError, match=error):
        bench.run(trial)


@pytest.mark.server
def test_a_short_trial_on_s3_finds_all_rows(bench, s3_server):
    # Its seed is one of those of which many requests fail.
    assert bench.run(replace(short_trial("s3"), seed=5))["faults"] > 0


@pytest.mark.parametrize(
    ("luck", "left"),
    [
        ((0.0, 0.0), {"old": "1", "entry synced": ""}),
        ((1.0, 0.0), {"old": "1", "entry synced": "", "content synced": "3", "unsynced": ""}),
        ((1.0, 1.0), {"old": "2", "entry synced": "4", "content synced": "3", "unsynced": "5"}),
    ],
)
def test_a_power_cut_leaves_what_was_synced(tmp_path, monkeypatch, luck, left):
    root = tmp_path / "table"
    root.mkdir()
    (root / "old").write_text("1")
    disk = Disk(root, tmp_path / "synced", random.Random(1))
    monkeypatch.setattr(disk, "draw_luck", lambda: luck)
    disk.sync()
    (root / "old").write_text("2")
    for name, text in (("entry synced", "4"), ("content synced", "3")):
        (root / name).write_text(text)
        descriptor = os.open(root / name if name == "content synced" else root, os.O_RDONLY)
        remember(disk.memory, descriptor)
        os.close(descriptor)
    (root / "unsynced").write_text("5")

    disk.cut()

    assert {path.name: path.read_text() for path in root.iterdir()} == left


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(100, 105))
def test_trials_of_every_kind(bench, kind, seed):
    assert bench.run(draw_trial(kind, seed))["rows_compared"] > 0


def test_a_trial_is_the_same_after_it_was_stored():
    for kind in ("local", "s3", "lance"):
        trial = draw_trial(kind, 5)
        assert Trial.from_json(trial.to_json()) == trial
        assert trial == draw_trial(kind, 5)
        assert trial != draw_trial(kind, 6)


def test_a_killed_call_is_made_again_and_killed_at_another_moment(bench, monkeypatch):
    """Its writers append once; a hot table is opened again instead."""
    seen, run = [], Subject._run_verb

    def run_and_note(self, one, place):
        seen.append(one)
        return run(self, one, place)

    monkeypatch.setattr(Subject, "_run_verb", run_and_note)
    one = Round(
        verb=Verb(name="upsert", blocks=(0, 1), value=3),
        fate="kill",
        moment=0.0,
        after_steps=1,
        again=3,
        before=(0,),
        meanwhile=(2,),
    )
    counts = bench.run(Trial(kind="local", seed=1, traits=(), rounds=(one,)))

    assert counts["kills"] >= len(seen) - 1
    assert [len(repeated.meanwhile) for repeated in seen] == [1] + [0] * (len(seen) - 1)
    assert len({repeated.moment for repeated in seen}) == len(seen) > 1
    drawn = draw_trial("local", 1, rounds=200).rounds
    assert {one.again for one in drawn if one.verb.name == "hot"} == {0}
    assert max(one.again for one in drawn) > 5


@contextmanager
def losing_a_row(subject):
    """Delete a row that the model does not know of, as a defect of a verb would."""
    yield
    subject.direct.open().delete(where="id = 1")


@pytest.fixture
def lossy(bench, monkeypatch):
    """A bench on whose tables `checkpoint` loses a row."""
    run = Subject._run_verb

    def run_and_lose(self, one, place):
        if one.verb.name == "checkpoint":
            self.shortage = lambda: losing_a_row(self)
        return run(self, one, place)

    monkeypatch.setattr(Subject, "_run_verb", run_and_lose)
    return bench


def test_a_lost_row_is_found_and_the_trial_made_short(lossy, tmp_path):
    compact = Round(verb=Verb(name="compact"), fate="end", moment=0, before=(0,))
    rounds = (compact, replace(compact, before=(1,), verb=Verb(name="checkpoint")))
    trial = Trial(kind="local", seed=9, traits=(), rounds=rounds)

    with pytest.raises(TrialError, match=r"1 missing \[\(1, 1\)\]"):
        lossy.run(trial)
    short = shrink(lossy, trial)

    assert [one.verb.name for one in short.rounds] == ["checkpoint"]
    assert short.rounds[0].before == (0, 1)
    script = write_script(tmp_path, short, "TrialError: lost")
    assert "# TrialError: lost" in script.read_text()
    assert (tmp_path / "local-9.json").exists()


def test_a_campaign_goes_on_behind_its_seeds_and_reports_what_it_counted(tmp_path):
    published = tmp_path / "published.json"
    ledger = Ledger(tmp_path / "ledger.jsonl", published=published)
    assert next(ledger.new_seeds("s3")) == 0
    known = {"revision": "abc", "seconds": 2.0}
    counts = {"kills": 3, "killed after commit-put": 2, "verb compact": 5, "error CONFLICT": 1}
    ledger.add(Entry(kind="s3", seed=1, counts=counts, **known))
    ledger.add(Entry(kind="local", seed=0, counts={"kills": 1}, failure="lost", **known))
    assert next(ledger.new_seeds("local")) == 1

    first = ledger.publish()
    assert ledger.entries() == []
    assert list(islice(ledger.new_seeds("s3"), 3)) == [0, 2, 3]
    assert next(ledger.new_seeds("s3", 7)) == 7
    assert ledger.totals() == first
    ledger.add(Entry(kind="s3", seed=5, counts={"kills": 1}, **known))
    assert ledger.publish().counts["s3"]["kills"] == 4

    assert "by what was killed: after commit-put 2." in describe(ledger.totals().counts)
    page = tmp_path / "page.md"
    marks = "<!-- campaign: written by tests/campaign -->\nold\n<!-- end of campaign -->"
    page.write_text(f"a\n{marks}\nb\n")
    publish(ledger.totals().counts, page)
    publish(ledger.totals().counts, page)
    assert page.read_text().startswith("a\n")
    assert page.read_text().endswith("<!-- end of campaign -->\nb\n")
    assert "old" not in page.read_text()
    assert page.read_text().count("| s3 | 2 |") == 1


def test_no_trial_is_counted_twice(tmp_path):
    """Also if two machines ran it, or the ledger of one is added again."""
    published = tmp_path / "published.json"
    for name in ("here", "there", "here again"):
        ledger = Ledger(tmp_path / f"{name}.jsonl", published=published)
        for seed in (3, 4, 3) if name == "there" else (2, 3):
            counts = {"kills": 10 + seed}
            entry = Entry(kind="local", seed=seed, revision="abc", seconds=1.0, counts=counts)
            ledger.add(entry)
        results = ledger.publish()

    assert results.counts["local"]["kills"] == 12 + 13 + 14
    assert results.counts["local"]["trials"] == 3
    assert json.loads(published.read_text())["seeds"] == {"local": "2-4"}


def test_the_page_shows_the_committed_results():
    """The table of the page is written from them, never by hand."""
    root = Path(__file__).parents[2]
    results = Results.from_json((root / "benchmarks" / "results" / "campaign.json").read_text())
    assert describe(results.counts) in (root / "docs" / "reliability.md").read_text()


def test_operations_are_forked_from_a_process_with_one_thread():
    warm = warm_process(())
    ended = [warm.fork(int, text) for text in ("1", "no number")]
    for process in ended:
        process.join()

    assert warm.thread_count() == 1
    assert [process.exitcode for process in ended] == [0, 1]
    sleeping = warm.fork(time.sleep, 60)
    sleeping.join(0.01)
    assert sleeping.is_alive()
    os.kill(sleeping.pid, signal.SIGKILL)
    sleeping.join()
    assert sleeping.exitcode == -signal.SIGKILL


def test_writers_lose_nothing_beside_lakehand(tmp_path):
    measured = measure(tmp_path, 16)

    assert measured["missing_rows"] == 0
    assert measured["beside"]["failed"] == measured["without"]["failed"] == 0
    assert measured["beside"]["commits"] == measured["without"]["commits"] == 8
