"""Types that Delta knows, and values of them that were trouble somewhere."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from hypothesis import strategies as st

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

_DECIMALS = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: pa.decimal128(precision, scale))
)
_PLAIN = st.sampled_from(
    [
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("us"),
    ]
)
LEAVES = st.one_of(_PLAIN, _PLAIN, _PLAIN, _DECIMALS)
#: Keys of maps as Spark allows them: no floats here, whose equality is a matter of opinion.
_KEYS = st.sampled_from([pa.string(), pa.int32(), pa.date32(), pa.decimal128(20, 3)])


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    members = st.lists(inner, min_size=1, max_size=3)
    structs = members.map(lambda kinds: pa.struct({f"m{i}": kind for i, kind in enumerate(kinds)}))
    return st.one_of(structs, inner.map(pa.list_), st.builds(pa.map_, _KEYS, inner))


TYPES = st.recursive(LEAVES, _nested, max_leaves=4)

_F64 = [0.0, -0.0, 1.5, -2.25, 1e300, -1e-310, np.inf, -np.inf, np.nan, -np.nan, 0.1]
_F32 = [0.0, -0.0, 1.5, -2.25, 3e38, -1e-44, np.inf, -np.inf, np.nan, -np.nan, 0.1]
_BITS = {
    pa.float64(): np.array(_F64, np.float64).view(np.int64).tolist(),
    pa.float32(): np.array(_F32, np.float32).view(np.int32).tolist(),
}
_TEXTS = ["", " ", "a", "NULL", "\x00", "é", "😀", "\U0010ffff", "ab\ncd", '"', "%41", "ä" * 32]
_TEXTS += ["x" * 32 + tail for tail in ("", "a", "\x7f", "ü", "\U0010ffff", "b" * 300)]
_TEXTS += ["\U0010ffff" * 70, "z" * 31 + "😀😀", "y" * 64 + "😀"]
_BYTES = [b"", b"\x00", b"\xff\xfe", b"text", bytes(range(256)), b"x" * 40]
#: Around the change of calendars, the first year, far ahead, and where Python has no dates left.
_DAYS = [-141_428, -141_427, -141_437, -719_162, 0, 19_000, 2_932_896, 60_000_000, -10_000_000]
_DAY_MICROS = 86_400_000_000
_MICROS = [0, 1, 999, 1000, -1, -1000, 1_700_000_000_123_456, 253_402_300_799_999_999]
_MICROS += [-12_219_292_800_000_000, -62_135_596_800_000_000, -2_208_988_800_000_001]


@dataclass(frozen=True)
class Values:
    """Random values as `exact_values` has them."""

    rng: random.Random
    #: Part of the values that is null.
    nulls: float = 0.2

    def of(self, kind: pa.DataType) -> Any:
        """Return a value, or None."""
        return None if self.rng.random() < self.nulls else self.present(kind)

    def present(self, kind: pa.DataType) -> Any:
        if pat.is_struct(kind):
            return tuple(self.of(member.type) for member in kind)
        if pat.is_map(kind):
            keys = {self.present(kind.key_type) for _ in range(self.rng.randrange(4))}
            return tuple((key, self.of(kind.item_type)) for key in sorted(keys))
        if pat.is_list(kind):
            return tuple(self.of(kind.value_type) for _ in range(self.rng.randrange(4)))
        return next(make for test, make in _MAKERS.items() if test(kind))(self.rng, kind)


def _integer(rng: random.Random, kind: pa.DataType) -> int:
    limit = 2 ** (kind.bit_width - 1)
    return rng.choice([0, 1, -1, limit - 1, -limit, rng.randrange(-100, 100)])


def _decimal(rng: random.Random, kind: pa.DataType) -> Decimal:
    largest = 10**kind.precision - 1
    unscaled = rng.choice([0, 1, -1, largest, -largest, rng.randrange(-largest, largest + 1)])
    return Decimal(unscaled).scaleb(-kind.scale, Context(prec=50))


def _day(rng: random.Random, _kind: pa.DataType) -> int:
    return rng.choice([*_DAYS, rng.randrange(-719_162, 2_932_897)])


def _micros(rng: random.Random, _kind: pa.DataType) -> int:
    days, millis = rng.randrange(-700_000, 100_000), rng.randrange(1000) * 1000
    return rng.choice([*_MICROS, days * _DAY_MICROS + millis, days * _DAY_MICROS + 123_457])


_MAKERS: Mapping[Callable[[pa.DataType], bool], Callable[[random.Random, pa.DataType], Any]] = {
    pat.is_integer: _integer,
    pat.is_floating: lambda rng, kind: rng.choice(_BITS[kind]),
    pat.is_decimal: _decimal,
    pat.is_boolean: lambda rng, _: rng.random() < 0.5,
    pat.is_string: lambda rng, _: rng.choice(_TEXTS),
    pat.is_binary: lambda rng, _: rng.choice(_BYTES),
    pat.is_date32: _day,
    pat.is_timestamp: _micros,
}
