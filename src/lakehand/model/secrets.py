"""Secrets are named, and read when they are needed: they are in no configuration and no log."""

from __future__ import annotations

import os
from pathlib import Path

from lakehand.errors import ConfigError

#: How the place of a secret begins.
SECRET_KINDS = ("env:", "file:")


def parse_secret(value: str) -> str:
    """Return the place of a secret; ValueError if it is not one: it may be the secret itself.

    >>> parse_secret("env:NOTIFY_TOKEN")
    'env:NOTIFY_TOKEN'
    """
    if not isinstance(value, str):
        raise TypeError("it is not a string")
    if not value.startswith(SECRET_KINDS):
        raise ValueError("a secret is named as env:VARIABLE or file:/path, not written here")
    return value


def parse_remote(value: str) -> str:
    """Return the URL of a Spark Connect server, or the place of one; ValueError if it has a token.

    >>> parse_remote("sc://spark:15002/;use_ssl=true")
    'sc://spark:15002/;use_ssl=true'
    """
    if not isinstance(value, str):
        raise TypeError("it is not a string")
    if "token=" in value.lower() and not value.startswith(SECRET_KINDS):
        raise ValueError("a URL with a token is named as env:VARIABLE or file:/path")
    return value


def read_remote(value: str) -> str:
    """Return the URL of a Spark Connect server that `parse_remote` has accepted."""
    return read_secret(value) if value.startswith(SECRET_KINDS) else value


def read_secret(place: str) -> str:
    """Return a secret that is named as `env:VARIABLE` or `file:/path`."""
    kind, _, name = place.partition(":")
    if kind == "env":
        value = os.environ.get(name)
        if value is None:
            raise ConfigError(f"the environment variable {name}, which holds a secret, is not set")
        return value.strip()
    try:
        return Path(name).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file {name}, which holds a secret, cannot be read") from error
