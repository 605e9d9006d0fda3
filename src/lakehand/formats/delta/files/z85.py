"""Z85: bytes as text, four bytes to five characters. Deletion vectors are named and inlined so."""

from __future__ import annotations

__all__ = ["decode", "encode"]

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {character: digit for digit, character in enumerate(_ALPHABET)}
_BASE = len(_ALPHABET)
_GROUP_CHARACTERS = 5
_GROUP_BYTES = 4


def encode(data: bytes) -> str:
    """Return `data`, zero-padded to whole groups of four bytes, as text.

    >>> encode(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    padded = data + bytes(-len(data) % _GROUP_BYTES)
    starts = range(0, len(padded), _GROUP_BYTES)
    return "".join(_encode_group(padded[start : start + _GROUP_BYTES]) for start in starts)


def decode(text: str) -> bytes:
    """Return the bytes of `text`, padding included; ValueError if it is no Z85."""
    if len(text) % _GROUP_CHARACTERS:
        raise ValueError(f"{len(text)} characters are no whole number of Z85 groups")
    starts = range(0, len(text), _GROUP_CHARACTERS)
    return b"".join(_decode_group(text[start : start + _GROUP_CHARACTERS]) for start in starts)


def _encode_group(group: bytes) -> str:
    value = int.from_bytes(group, "big")
    characters = []
    for _ in range(_GROUP_CHARACTERS):
        value, digit = divmod(value, _BASE)
        characters.append(_ALPHABET[digit])
    return "".join(reversed(characters))


def _decode_group(group: str) -> bytes:
    value = 0
    for character in group:
        if character not in _DIGITS:
            raise ValueError(f"{character!r} is no Z85 character")
        value = value * _BASE + _DIGITS[character]
    if value >= 1 << 8 * _GROUP_BYTES:
        raise ValueError(f"{group!r} stands for more than four bytes")
    return value.to_bytes(_GROUP_BYTES, "big")
