"""LIKE patterns."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Prefix", "fixed_prefix"]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The text with which every match of a pattern begins."""

    text: str
    #: Whether beginning with the text is all that the pattern asks for.
    is_whole: bool


def fixed_prefix(pattern: str, *, escape: str = "\\") -> Prefix:
    r"""Return what every match of `pattern` begins with.

    >>> fixed_prefix(r"100\%-a%")
    Prefix(text='100%-a', is_whole=True)
    >>> fixed_prefix("a_c%")
    Prefix(text='a', is_whole=False)
    """
    text: list[str] = []
    characters = iter(enumerate(pattern))
    for position, character in characters:
        if character == escape:
            text.append(next(characters, (0, ""))[1])
        elif character in "%_":
            return Prefix("".join(text), pattern[position:] == "%")
        else:
            text.append(character)
    return Prefix("".join(text), is_whole=False)
