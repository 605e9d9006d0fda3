"""Random interleavings of two writers always equal a model that knows only sets of rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lakehand.errors import CommitConflictError
from lakehand.model.work import Change, Replacement
from lakehand.storage import FaultStore
from support.changes import staged_file
from support.log_tables import apply, commits, live_files, new_table

WRITERS = st.sampled_from(["ann", "bob"])


@dataclass
class Pending:
    """A change that a writer has prepared, and how many changes of rows it has seen."""

    change: Change
    token: str
    row_changes_seen: int


class Interrupted(FaultStore):
    """A store in which something happens right before our first put."""

    def __init__(self, store, happening):
        super().__init__(store, [])
        self._happening = happening

    def put_if_absent(self, key, data):
        happening, self._happening = self._happening, None
        if happening is not None:
            happening()
        super().put_if_absent(key, data)


class TwoWriters(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.store = new_table()
        self.numbers = itertools.count()
        self.rows_of: dict[str, frozenset[int]] = {}
        self.live: set[str] = set()
        self.row_changes = 0
        self.pending: dict[str, Pending] = {}
        self.landed: list[str] = []
        self.version = 0

    # What a writer prepares

    def prepare(self, writer, **change):
        base = {"base_version": self.version, "operation": "TEST", **change}
        token = f"{writer}-{next(self.numbers)}"
        self.pending[writer] = Pending(Change(**base), token, self.row_changes)

    def new_file(self, rows):
        path = f"file {next(self.numbers)}.parquet"
        self.rows_of[path] = frozenset(rows)
        return staged_file(path, rows=len(self.rows_of[path]))

    def choose(self, data, *, most):
        files = live_files(self.store)
        chosen = data.draw(st.lists(st.sampled_from(sorted(files)), unique=True, max_size=most))
        return [files[path] for path in chosen]

    @rule(writer=WRITERS)
    def append(self, writer):
        self.prepare(writer, kind="append", adds=(self.new_file([next(self.numbers)]),))

    @precondition(lambda self: self.live)
    @rule(writer=WRITERS, data=st.data())
    def rewrite(self, writer, data):
        inputs = self.choose(data, most=6)
        groups = [g for g in (inputs[:2], inputs[2:4], inputs[4:]) if g]
        replacements = tuple(self.regroup(number, group) for number, group in enumerate(groups))
        if replacements:
            self.prepare(writer, kind="rewrite", replacements=replacements)

    def regroup(self, number, group):
        rows = frozenset().union(*(self.rows_of[file.path] for file in group))
        return Replacement(group=number, removes=tuple(group), adds=(self.new_file(rows),))

    @precondition(lambda self: self.live)
    @rule(writer=WRITERS, data=st.data(), reads_rows=st.booleans())
    def replace(self, writer, data, reads_rows):
        removes = self.choose(data, most=2)
        adds = (self.new_file([next(self.numbers)]),)
        self.prepare(
            writer, kind="overwrite", removes=tuple(removes), adds=adds, reads_rows=reads_rows
        )

    # What happens when it is committed

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def commit(self, data):
        self.commit_as(data.draw(st.sampled_from(sorted(self.pending))), self.store)

    @precondition(lambda self: len(self.pending) == 2)
    @rule(first=WRITERS)
    def race(self, first):
        [second] = set(self.pending) - {first}
        rival = Interrupted(self.store, lambda: self.commit_as(second, self.store))
        self.commit_as(first, rival)

    def commit_as(self, writer, through):
        pending = self.pending[writer]
        try:
            receipt = apply(self.store, pending.change, token=pending.token, through=through)
        except CommitConflictError:
            receipt = None
        # The rival of a race has changed the model by now: it is the order of the log that counts.
        del self.pending[writer]
        expected = self.groups_left(pending)
        assert (receipt is not None) == (expected is not None)
        if receipt is not None:
            self.take_in(pending, receipt, expected)

    def groups_left(self, pending):
        """Return the groups that must be committed; None if the change must fail."""
        change = pending.change
        if change.kind == "rewrite":
            return [g for g in change.replacements if self.all_live(g.removes)] or None
        moved = change.reads_rows and pending.row_changes_seen != self.row_changes
        return None if moved or not self.all_live(change.removes) else []

    def all_live(self, files):
        return all(file.path in self.live for file in files)

    def take_in(self, pending, receipt, groups):
        dropped = {g.group for g in pending.change.replacements} - {g.group for g in groups}
        assert set(receipt.dropped) == dropped
        rows = self.rows()
        for removes, adds in [
            (pending.change.removes, pending.change.adds),
            *((group.removes, group.adds) for group in groups),
        ]:
            self.live -= {file.path for file in removes}
            self.live |= {file.path for file in adds}
        if pending.change.kind == "rewrite":
            assert self.rows() == rows
        else:
            self.row_changes += 1
        self.landed.append(pending.token)
        self.version += 1
        assert receipt.version == self.version

    def rows(self):
        return sorted(row for path in self.live for row in self.rows_of[path])

    # What always holds

    @invariant()
    def the_log_holds_the_files_of_the_model(self):
        assert set(live_files(self.store)) == self.live

    @invariant()
    def versions_are_dense_and_every_success_is_there_once(self):
        log = commits(self.store)
        assert [commit.version for commit in log] == list(range(len(log)))
        assert [commit.commit_info["txnId"] for commit in log[1:]] == self.landed


TestTwoWriters = TwoWriters.TestCase
TestTwoWriters.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
