"""Credentials as all tools of AWS find them: profiles, SSO, roles, programs, the machine's own.

botocore (the extra `aws`) reads the files and renews what expires. Keys in options and environment
variables need none of this, and neither do the roles of a machine or container without any file:
obstore knows those itself.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehand.errors import AccessDeniedError, LakehandError, ValidationError
from lakehand.observe import get_logger, log_event

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Keys are asked for again after this time. botocore renews those that expire sooner, if it can.
_VALID_FOR = timedelta(minutes=10)
#: Keys without an expiry are read from their file again after this time.
_READ_AGAIN_AFTER = timedelta(minutes=15)
#: Variables that name the files, and where they are below the home directory otherwise.
_FILES = {"AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials", "AWS_CONFIG_FILE": ".aws/config"}
_PROFILES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
_INSTALL = "pip install 'lakehand[aws]'"
_logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessKeys:
    """Keys, valid at least until a time. They are never printed."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None
    valid_until: datetime

    def __repr__(self) -> str:
        return f"AccessKeys(valid_until={self.valid_until:%Y-%m-%d %H:%M:%S})"

    @property
    def is_valid(self) -> bool:
        return datetime.now(UTC) < self.valid_until


class RenewedCredentials:
    """Keys from a source that is asked again before they expire.

    Pickled, they take the current keys along, so that a Spark executor needs no access to the
    source. When those are about to expire, the executor asks it nevertheless, and if that finds
    nothing, uses them until the store refuses them.
    """

    def __init__(self, source: str | None, keys: AccessKeys | None = None) -> None:
        self._source = source
        self._keys = keys

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._source, self.current())

    def fetch(self) -> AccessKeys | None:
        """Ask the source; None if it knows no keys here."""
        raise NotImplementedError

    def current(self) -> AccessKeys:
        """Return keys that are valid for some minutes."""
        keys = self._keys
        if keys is None or not keys.is_valid:
            keys = self._fetch_or_keep(keys)
        if keys is None:
            raise AccessDeniedError(
                "no credentials were found for S3",
                operation="connect",
                hint="log in (`aws sso login`), choose a profile with AWS_PROFILE or the option"
                " profile, or pass access_key_id and secret_access_key",
            )
        self._keys = keys
        return keys

    def _fetch_or_keep(self, old: AccessKeys | None) -> AccessKeys | None:
        """Ask the source; if it fails, use the old keys until the store refuses them."""
        try:
            return self.fetch() or old
        except LakehandError as error:
            if old is None:
                raise
            message = "credentials of S3 cannot be renewed now: %s"
            log_event(_logger, logging.WARNING, "credentials_kept", message, error.message)
            return old

    def __call__(self) -> dict[str, str | datetime | None]:
        """Return the keys in the words of obstore, which asks again before they expire."""
        keys = self.current()
        return {
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "token": keys.session_token,
            "expires_at": keys.valid_until,
        }


class AwsCredentials(RenewedCredentials):
    """The keys of a profile, or of the default chain."""

    def fetch(self) -> AccessKeys | None:
        return _SESSIONS.keys_of(self._source)


class _Sessions:
    """Sessions of botocore in this process, by what decides which profile and files they read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str | None, ...], tuple[Any, datetime]] = {}

    def keys_of(self, profile: str | None) -> AccessKeys | None:
        """Return the keys of a profile; None if nothing knows any."""
        with self._lock:  # one login, however many tables are opened
            try:
                found = self._credentials(profile)
                frozen = found.get_frozen_credentials() if found else None
            except ImportError:
                return None
            except Exception as error:  # noqa: BLE001  programs and plugins of others
                raise _explained(error, profile) from None
        if frozen is None:
            return None
        until = datetime.now(UTC) + _VALID_FOR
        expiry = getattr(found, "_expiry_time", None)  # some programs hand out keys for a minute
        return AccessKeys(
            access_key_id=frozen.access_key,
            secret_access_key=frozen.secret_key,
            session_token=frozen.token,
            valid_until=min(until, expiry.astimezone(UTC)) if expiry else until,
        )

    def _credentials(self, profile: str | None) -> Any:
        key = (profile, *map(os.environ.get, (*_PROFILES, *_FILES, "HOME")))
        credentials, until = self._found.get(key, (None, datetime.now(UTC)))
        if credentials is None or datetime.now(UTC) >= until:
            credentials = _open_session(profile).get_credentials()
            renews = credentials is not None and hasattr(credentials, "refresh_needed")
            until = datetime.max.replace(tzinfo=UTC) if renews else _soon()
            self._found[key] = credentials, until
        return credentials


_SESSIONS = _Sessions()


def _soon() -> datetime:
    return datetime.now(UTC) + _READ_AGAIN_AFTER


def find_aws_profile(
    options: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[AwsCredentials | None, dict[str, str]]:
    """Return the credentials of a profile and the options it sets, such as its region.

    Nothing, if the options hold keys, or if there is no profile at all.
    """
    profile = options.get("profile")
    if "access_key_id" in options or options.get("skip_signature", "").lower() == "true":
        return None, {}
    named = profile or next(filter(None, map(environment.get, _PROFILES)), None)
    if named is None and not any(_has_file(environment, name) for name in _FILES):
        return None, {}
    try:
        import botocore.session  # noqa: F401
    except ImportError:
        if named is None:
            return None, {}
        raise ValidationError(
            f"the AWS profile {named!r} needs botocore, which is not installed",
            field="profile",
            value=named,
            hint=_INSTALL,
        ) from None
    return AwsCredentials(profile), _options_of(profile)


def _has_file(environment: Mapping[str, str], name: str) -> bool:
    if given := environment.get(name):
        return Path(given).expanduser().exists()
    home = environment.get("HOME")
    return home is not None and Path(home, _FILES[name]).exists()


def _open_session(profile: str | None) -> Any:
    import botocore.session

    return botocore.session.Session(profile=profile)


def _options_of(profile: str | None) -> dict[str, str]:
    """Return the region, endpoint and addressing style of a profile, in the names of obstore."""
    from botocore.configprovider import ConfiguredEndpointProvider

    session = _open_session(profile)
    try:
        scoped = session.get_scoped_config()
        region = session.get_config_variable("region")
    except Exception as error:  # noqa: BLE001  botocore raises errors of its parsers too
        raise _explained(error, profile) from None
    endpoint = ConfiguredEndpointProvider(session.full_config, scoped, "s3").provide()
    s3 = scoped.get("s3")
    style = s3.get("addressing_style") if isinstance(s3, dict) else None
    options = {"region": region, "endpoint": endpoint}
    if style in {"path", "virtual"}:
        options["virtual_hosted_style_request"] = str(style == "virtual").lower()
    return {name: value for name, value in options.items() if value}


def _explained(error: Exception, profile: str | None) -> Exception:
    """Return botocore's error as lakehand's; its messages name files and profiles, never keys."""
    from botocore import exceptions

    if isinstance(error, exceptions.ProfileNotFound):
        names = sorted(_open_session(None).full_config["profiles"])
        return ValidationError(
            str(error),
            field="profile",
            value=profile,
            hint=f"there are {', '.join(names)}" if names else "there is no profile at all",
        )
    expired = (
        exceptions.SSOTokenLoadError,
        exceptions.TokenRetrievalError,
        exceptions.UnauthorizedSSOTokenError,
    )
    is_login = isinstance(error, expired)
    return AccessDeniedError(
        f"no credentials for S3: {str(error).partition(chr(10))[0]}",
        operation="connect",
        hint="log in again: aws sso login" if is_login else "check ~/.aws/config",
    )
