"""What a store refuses is said with the permission that is missing, and without secrets."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from lakehand.errors import AccessDeniedError
from lakehand.storage.error_translation import translated

FORBIDDEN = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>{code}</Code>{more}"
OF_A_KEY = (
    "<Message>User: arn:aws:iam::1:user/u is not authorized to perform: kms:GenerateDataKey on"
    " resource: arn:aws:kms:x</Message>"
)


def refused(operation, error, *, url="s3://lake/t/a"):
    with pytest.raises(AccessDeniedError) as caught, translated(operation, url):
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("operation", "permission"),
    [
        ("get", "s3:GetObject"),
        ("head", "s3:GetObject"),
        ("list", "s3:ListBucket"),
        ("put", "s3:PutObject"),
        ("put-if-absent", "s3:PutObject"),
        ("delete", "s3:DeleteObject"),
    ],
)
def test_the_permission_of_each_request_is_named(operation, permission):
    error = refused(
        operation, PermissionDeniedError(FORBIDDEN.format(code="AccessDenied", more=""))
    )
    assert permission in error.hint


def test_a_permission_that_the_store_names_wins():
    text = FORBIDDEN.format(code="AccessDenied", more=OF_A_KEY)
    error = refused("put", PermissionDeniedError(text))
    assert "kms:GenerateDataKey" in error.hint
    assert "arn:" not in str(error)


def test_one_refused_deletion_of_many_is_a_refusal():
    error = refused("delete", GenericError("DeleteObjects request failed (code: AccessDenied)"))
    assert "s3:DeleteObject" in error.hint


def test_expired_credentials_are_told_from_missing_permissions():
    error = refused("get", PermissionDeniedError(FORBIDDEN.format(code="ExpiredToken", more="")))
    assert error.hint == "the credentials have expired; renew them"


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_wrong_keys_are_not_taken_for_a_missing_permission(code):
    error = refused("get", PermissionDeniedError(FORBIDDEN.format(code=code, more="")))
    assert "s3:" not in error.hint


def test_other_stores_have_no_permissions_of_s3():
    text = FORBIDDEN.format(code="AuthorizationPermissionMismatch", more="")
    assert "s3:" not in refused("get", PermissionDeniedError(text), url="az://c/t/a").hint
