"""Everything that deletes, against a model: every promised version keeps its rows, and no more."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from support.modelled_tables import ModelledTable

chances = st.integers(0, 2**16).map(Random)
graces = st.sampled_from(["24h", "0"])


class Retention(RuleBasedStateMachine):
    """Every step is one call of the model; steps that delete nothing only touch the newest."""

    #: Whether promised versions are read whenever anything has changed that reading them looks at,
    #: not only after steps that delete.
    reads_whatever_changed = False

    def __init__(self) -> None:
        super().__init__()
        self.model = ModelledTable()
        self.may_have_deleted = False

    @rule(chance=chances)
    def append(self, chance) -> None:
        self.model.append(chance)

    @rule(chance=chances)
    def begin_append(self, chance) -> None:
        self.model.begin_append(chance)

    @rule(chance=chances)
    def end_append(self, chance) -> None:
        self.model.end_append(chance)

    @rule(chance=chances)
    def delete(self, chance) -> None:
        self.model.delete(chance)

    @rule()
    def compact(self) -> None:
        self.model.compact()

    @rule(chance=chances)
    def restore(self, chance) -> None:
        self.model.restore(chance)

    @rule(hours=st.sampled_from([1, 23, 25, 100, 169, 400]))
    def wait(self, hours) -> None:
        self.model.wait(hours)

    @rule(grace=graces, expire=st.booleans(), entries=st.sampled_from(["never", "always"]))
    def vacuum(self, grace, expire, entries) -> None:
        self.may_have_deleted = True
        self.model.vacuum(grace=grace, expire=expire, entries=entries)

    @rule(grace=graces)
    def vacuum_lite(self, grace) -> None:
        self.may_have_deleted = True
        self.model.vacuum(grace=grace, mode="lite")

    @rule(chance=chances)
    def undo(self, chance) -> None:
        self.model.undo(chance)

    @rule()
    def checkpoint(self) -> None:
        self.model.checkpoint()

    @rule()
    def clean_logs(self) -> None:
        self.may_have_deleted = True
        self.model.clean_logs()

    @rule(chance=chances)
    def pin(self, chance) -> None:
        self.model.pin(chance)

    @rule()
    def drop_a_pin(self) -> None:
        self.model.drop_a_pin()

    @invariant()
    def every_promised_version_has_its_rows(self) -> None:
        if self.reads_whatever_changed:
            self.model.check(self.model.versions_in_doubt())
        else:
            newest = [len(self.model.rows) - 1]
            self.model.check(None if self.may_have_deleted else newest)
        self.may_have_deleted = False

    def teardown(self) -> None:
        self.model.expire()


class RetentionForLong(Retention):
    reads_whatever_changed = True


def assert_promises_are_kept(machine: type[Retention], *, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_every_promised_version_keeps_its_rows_and_nothing_else_is_kept():
    assert_promises_are_kept(Retention, examples=6, steps=14)


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_a_pinned_version_outlives_the_retention_and_a_vacuum(mode):
    """A walk that chance seldom takes: nothing but the pin keeps files of the first rows."""
    model = ModelledTable()
    model.append(Random(1))
    model.append(Random(2))
    for number in range(20):
        model.pin(Random(number))
    assert set(model.pins.values()) == {0, 1, 2}
    model.compact()
    model.wait(400)
    model.vacuum(grace="0", mode=mode)

    model.check([0, 1, 2])
    model.expire()


@pytest.mark.soak
def test_every_promised_version_keeps_its_rows_for_long():
    assert_promises_are_kept(RetentionForLong, examples=80, steps=40)
