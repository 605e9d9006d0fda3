from __future__ import annotations

import json

import pytest

from lakehand.errors import RefusedError
from lakehand.formats.delta.protocol.arrow_types import check_type_changes
from lakehand.formats.delta.protocol.schema import parse_schema


def schema_with(old: str, new: str, *, nested: bool = False):
    change = {"fromType": old, "toType": new}
    field = {"name": "v", "type": new, "metadata": {"delta.typeChanges": [change]}}
    inner = {"type": "struct", "fields": [field]}
    outer = {"name": "outer", "type": {"type": "array", "elementType": inner}}
    return parse_schema(json.dumps({"type": "struct", "fields": [outer if nested else field]}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("byte", "short"),
        ("short", "integer"),
        ("integer", "long"),
        ("integer", "double"),
        ("float", "double"),
        ("date", "timestamp_ntz"),
        ("decimal(5,2)", "decimal(7,4)"),
        ("byte", "decimal(10,0)"),
        ("long", "decimal(21,1)"),
    ],
)
def test_a_change_that_loses_nothing_is_accepted(old, new):
    check_type_changes(schema_with(old, new), table="t")
    check_type_changes(schema_with(old, new, nested=True), table="t")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("long", "integer"),
        ("long", "double"),
        ("string", "binary"),
        ("date", "timestamp"),
        ("decimal(5,2)", "decimal(6,4)"),
        ("decimal(5,2)", "decimal(7,1)"),
        ("integer", "decimal(9,0)"),
        ("boolean", "decimal(38,0)"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_any_other_change_is_refused_with_its_column(old, new, nested):
    with pytest.raises(RefusedError, match=r"column 'v' of t was changed from") as caught:
        check_type_changes(schema_with(old, new, nested=nested), table="t")
    assert caught.value.feature == "typeWidening"
