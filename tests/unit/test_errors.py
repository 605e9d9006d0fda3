from __future__ import annotations

import json
import pickle
import re

import pytest

from lakehand import errors
from lakehand.errors import LakehandError, StorageError, UnknownColumnError, is_retryable

EVERY_ERROR = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, LakehandError)
]


def _drawn_tree() -> dict[str, str | None]:
    """Read parent by class from the tree in the module's docstring."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"^([│├└─\s]*)([A-Z]\w+Error)\b", line)
        if match:
            depth = len(match.group(1)) // 4
            path = [*path[:depth], match.group(2)]
            parents[match.group(2)] = path[-2] if depth else None
    return parents


def test_the_tree_in_the_docstring_is_the_tree_of_classes():
    real = {
        kind.__name__: None if kind is LakehandError else kind.__base__.__name__
        for kind in EVERY_ERROR
    }
    assert _drawn_tree() == real


def test_every_error_is_exported():
    assert {kind.__name__ for kind in EVERY_ERROR} <= set(errors.__all__)


def test_codes_tell_errors_apart():
    codes = [kind.code for kind in EVERY_ERROR]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", EVERY_ERROR, ids=lambda kind: kind.__name__)
def test_every_error_survives_a_process_boundary(kind):
    if kind is UnknownColumnError:
        error = kind("a", ["b", "c"])
    else:
        error = kind("it broke", hint="mend it", extra=7)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.to_json()) == (str(error), error.to_json())


@pytest.mark.parametrize("kind", EVERY_ERROR, ids=lambda kind: kind.__name__)
def test_every_exit_code_is_one_of_the_documented(kind):
    assert kind.exit_code in {1, 2, 3, 4}


def test_the_exit_code_tells_a_lost_race_from_a_failed_proof():
    assert errors.CommitConflictError.exit_code == errors.ReplanError.exit_code == 3
    assert errors.ProofError.exit_code == 4
    assert errors.ValidationError.exit_code == 2
    assert errors.CommitUnknownError.exit_code == 1


def test_an_error_as_json_holds_its_attributes_and_leaves_out_what_is_not_known():
    error = StorageError("no", path="a/b", operation="get", status=403, hint="ask")
    assert json.loads(json.dumps(error.to_json())) == {
        "code": "STORAGE_ERROR",
        "message": "no",
        "hint": "ask",
        "retryable": False,
        "path": "a/b",
        "operation": "get",
        "status": 403,
    }


def test_attributes_can_be_read_as_such():
    error = errors.CommitConflictError("lost", expected_version=3, actual_version=4)
    assert (error.expected_version, error.actual_version) == (3, 4)


def test_the_text_of_an_error_ends_with_its_hint():
    assert str(LakehandError("it broke", hint="mend it")) == "it broke\n\nhint: mend it"
    assert str(LakehandError("it broke")) == "it broke"


def test_only_what_may_pass_is_retryable():
    assert is_retryable(errors.StoreUnreachableError("later"))
    assert is_retryable(errors.CommitConflictError("lost"))
    assert not is_retryable(errors.CommitUnknownError("who knows"))
    assert not is_retryable(ValueError("no"))


def test_an_error_comes_back_from_json_as_the_same_kind():
    error = StorageError("no", path="a/b", operation="get", status=403, hint="ask")
    back = errors.error_from_json(json.loads(json.dumps(error.to_json())))
    assert type(back) is StorageError
    assert (str(back), back.path, back.status) == (str(error), "a/b", 403)


def test_an_error_of_an_unknown_kind_is_still_an_error():
    back = errors.error_from_json({"code": "FROM_A_NEWER_VERSION", "message": "new"})
    assert (type(back), back.message) == (LakehandError, "new")


def test_a_table_of_many_columns_does_not_fill_the_screen():
    error = UnknownColumnError("colum7", [f"column{number}" for number in range(300)])
    assert error.message.endswith("column49 and 250 more")
    assert error.hint == "did you mean column7?"
