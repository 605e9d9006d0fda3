"""Tokens of the HTTP server: random, shown once, and stored as hashes."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from lakehand.errors import JobNotFoundError, ValidationError
from lakehand.service.job_states import ROLES
from lakehand.service.store.database_schema import TOKENS
from lakehand.service.store.events import record_event
from lakehand.service.store.records import record_json

if TYPE_CHECKING:
    from sqlalchemy import Row

    from lakehand.service.job_states import AccessRole
    from lakehand.service.store.database import Database

#: Says in logs and in scanners of secrets what it is.
_PREFIX = "lakehand_"
_RANDOM_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessToken:
    """A token of the HTTP server, without the token itself."""

    #: Name of the token: what is done with it is recorded under this name.
    name: str
    #: `viewer`, `operator` or `admin`.
    role: AccessRole
    #: When it was created.
    created_at: float
    #: Who created it.
    created_by: str | None
    #: When it ends to be valid; null: never.
    expires_at: float | None
    #: When it was revoked; null: it was not.
    revoked_at: float | None

    @classmethod
    def of(cls, row: Row[Any]) -> Self:
        values = row._mapping  # noqa: SLF001  the documented way to a row's names
        return cls(**{item.name: values[item.name] for item in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


def hash_of(token: str) -> str:
    """Return what is stored of a token. It is random and long, so a plain hash is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


class TokenRegistry:
    """The tokens of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        name: str,
        role: AccessRole,
        *,
        by: str | None = None,
        expires_at: float | None = None,
    ) -> tuple[AccessToken, str]:
        """Create a token; return it, and the secret, which cannot be read again."""
        if not _NAME.fullmatch(name):
            message = "the name of a token has letters, digits and . _ @ -, at most 100"
            raise ValidationError(message, field="name")
        if role not in ROLES:
            message = f"{role!r} is not a role; the roles are {', '.join(ROLES)}"
            raise ValidationError(message, field="role")
        secret = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        now = self._database.now()
        values = {"created_at": now, "created_by": by, "expires_at": expires_at}
        new = insert(TOKENS).values(name=name, role=role, hash=hash_of(secret), **values)
        try:
            with self._database.transaction() as connection:
                row = connection.execute(new.returning(TOKENS)).one()
                record_event(connection, now, "token.created", by=by, token=name, role=role)
        except IntegrityError as error:
            message = f"there is a token {name!r} already"
            hint = "choose another name: those of revoked tokens are not used again"
            raise ValidationError(message, field="name", hint=hint) from error
        return AccessToken.of(row), secret

    def listed(self) -> list[AccessToken]:
        """Return all tokens, the oldest first."""
        wanted = select(TOKENS).order_by(TOKENS.c.created_at, TOKENS.c.name)
        with self._database.reading() as connection:
            return [AccessToken.of(row) for row in connection.execute(wanted)]

    def revoke(self, name: str, *, by: str | None = None) -> AccessToken:
        """Make a token invalid; JobNotFoundError if there is no valid one of this name."""
        now = self._database.now()
        statement = (
            update(TOKENS)
            .where(TOKENS.c.name == name, TOKENS.c.revoked_at.is_(None))
            .values(revoked_at=now)
            .returning(TOKENS)
        )
        with self._database.transaction() as connection:
            row = connection.execute(statement).one_or_none()
            if row is None:
                hint = "lakehand service token list"
                raise JobNotFoundError(f"there is no token {name!r} to revoke", hint=hint)
            record_event(connection, now, "token.revoked", by=by, token=name)
        return AccessToken.of(row)

    def find(self, secret: str) -> AccessToken | None:
        """Return the valid token of a secret; None if there is none."""
        now = self._database.now()
        wanted = select(TOKENS).where(
            TOKENS.c.hash == hash_of(secret),
            TOKENS.c.revoked_at.is_(None),
            or_(TOKENS.c.expires_at.is_(None), TOKENS.c.expires_at > now),
        )
        with self._database.reading() as connection:
            row = connection.execute(wanted).one_or_none()
        return None if row is None else AccessToken.of(row)
