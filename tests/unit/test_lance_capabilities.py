"""What lakehand does not do to Lance tables is a short list, and every entry says why."""

from __future__ import annotations

import pytest

from lakehand.errors import RefusedError
from lakehand.formats.base import require_capability
from lakehand.formats.delta.table import DeltaTable
from lakehand.formats.lance.table import LanceTable
from lakehand.storage import open_store

#: Behaviour that tests of Delta show and Lance has not: it must not grow unnoticed.
NOT_ON_LANCE = {"checkpoint", "statistics"}


def test_the_list_of_what_lance_lacks_does_not_grow():
    assert set(LanceTable.capabilities.lacking) == NOT_ON_LANCE


def test_delta_lacks_nothing():
    assert DeltaTable.capabilities.lacking == {}


@pytest.mark.parametrize("operation", sorted(NOT_ON_LANCE))
def test_a_refusal_names_the_operation_and_the_reason(operation):
    table = LanceTable(open_store("memory://lance-capabilities"))
    with pytest.raises(RefusedError, match=operation) as caught:
        require_capability(table, operation)
    assert LanceTable.capabilities.lacking[operation] in caught.value.message
