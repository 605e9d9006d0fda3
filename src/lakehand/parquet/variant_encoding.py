"""Parquet's binary encoding of variants, for whole columns of them at once.

A variant is two binary values: the metadata lists the names of fields, the value refers to them by
their positions in that list (https://github.com/apache/parquet-format, VariantEncoding.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Octets = npt.NDArray[np.uint8]

_SHORT_TEXT, _OBJECT, _ARRAY = 1, 2, 3
_NULL, _TRUE, _FALSE = 0, 1, 2
_INT8, _INT16, _INT32, _INT64, _DOUBLE = 3, 4, 5, 6, 7
_DECIMAL4, _DECIMAL8, _DECIMAL16 = 8, 9, 10
_DATE, _INSTANT, _WALL_CLOCK, _FLOAT, _BINARY, _TEXT, _TIME = 11, 12, 13, 14, 15, 16, 17
_INSTANT_NANOS, _WALL_CLOCK_NANOS, _UUID = 18, 19, 20
_MAX_SHORT_TEXT, _MAX_SMALL_COUNT = 63, 255
_METADATA_VERSION = 1
_DECIMAL_DIGITS, _SMALL_DIGITS, _MIDDLE_DIGITS = 38, 9, 18
_DECIMAL_BYTES, _UUID_BYTES, _COUNT_BYTES = 16, 16, 4

#: A variant that is null, which differs from a column that has no variant.
NULL_VALUE = bytes([_NULL << 2])


def rows_of(octets: Octets, lengths: Integers, is_null: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return binary values that lie in `octets` one after the other."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(octets))]
    values = pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
    if is_null is None or not is_null.any():
        return values
    return pc.if_else(pa.array(is_null), pa.scalar(None, pa.binary()), values)


def octets_of(values: pa.Array) -> tuple[Octets, Integers]:
    """Return the bytes of binary values, and where each begins and the last one ends."""
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    octets = np.frombuffer(data, dtype=np.uint8) if data else np.zeros(0, dtype=np.uint8)
    return octets, starts.astype(np.int64)


def _kept(matrix: Octets, lengths: Integers) -> Octets:
    """Return the first `lengths` bytes of each row of a matrix."""
    return matrix[np.arange(matrix.shape[1]) < lengths[:, None]]


def _little_endian(numbers: Integers, width: int = 8) -> Octets:
    return numbers.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]


def _unsigned_widths(largest: Integers) -> Integers:
    """Return how many bytes each of some numbers needs: 1 to 4."""
    limits = np.array([1 << bits for bits in (8, 16, 24)])
    return 1 + np.searchsorted(limits, largest, side="right").astype(np.int64)


def can_encode(type_: pa.DataType) -> bool:
    """Return whether values of a Parquet column can become primitive values of a variant."""
    return _encoder(type_) is not None


def encode_primitive(values: pa.Array) -> pa.Array:
    """Return values of a column, none of which is null, as primitive variants."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    encoder = _encoder(values.type)
    if encoder is None:
        raise TypeError(f"no primitive value of a variant is a {values.type}")
    return encoder(values)


def _encoder(type_: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return next((encode for test, encode in _ENCODERS.items() if test(type_)), None)


def _headed(kind: int | npt.NDArray[np.int64], payload: Octets, lengths: Integers) -> pa.Array:
    """Return primitive values: a byte for the kind, then `lengths` bytes of the payload."""
    heads = np.broadcast_to(np.asarray(kind, dtype=np.int64) << 2, len(payload)).astype(np.uint8)
    matrix = np.concatenate([heads[:, None], payload], axis=1)
    return rows_of(_kept(matrix, lengths + 1), lengths + 1, None)


def _fixed(kind: int, payload: Octets) -> pa.Array:
    return _headed(kind, payload, np.full(len(payload), payload.shape[1], dtype=np.int64))


def _booleans(values: pa.Array) -> pa.Array:
    kinds = np.where(values.to_numpy(zero_copy_only=False), _TRUE, _FALSE)
    empty = np.zeros((len(values), 0), dtype=np.uint8)
    return _headed(kinds, empty, np.zeros(len(values), dtype=np.int64))


def _integers(values: pa.Array) -> pa.Array:
    """Encode integers in the fewest bytes, as Spark does."""
    numbers = values.cast(pa.int64()).to_numpy()
    classes = sum(
        ((numbers < -(1 << bits)) | (numbers >= 1 << bits)).astype(np.int64) for bits in (7, 15, 31)
    )
    return _headed(_INT8 + classes, _little_endian(numbers), 1 << np.asarray(classes))


def _decimals(values: pa.Array) -> pa.Array:
    """Encode decimals in the fewest bytes, as Spark does."""
    scale = values.type.scale
    wide = values.cast(pa.decimal128(_DECIMAL_DIGITS, scale))
    start = wide.offset * _DECIMAL_BYTES
    octets = np.frombuffer(wide.buffers()[1], dtype=np.uint8)[start:]
    matrix = octets[: len(wide) * _DECIMAL_BYTES].reshape(-1, _DECIMAL_BYTES)
    classes = _exceeds(wide, _SMALL_DIGITS) + _exceeds(wide, _MIDDLE_DIGITS)
    scales = np.full((len(wide), 1), scale, dtype=np.uint8)
    return _headed(
        _DECIMAL4 + classes, np.concatenate([scales, matrix], axis=1), 1 + (4 << classes)
    )


def _exceeds(values: pa.Array, digits: int) -> Integers:
    """Return 1 where an unscaled value has more digits than `digits`."""
    buffers = values.buffers()
    unscaled = pa.decimal128(_DECIMAL_DIGITS, 0)
    plain = pa.Array.from_buffers(unscaled, len(values), buffers, offset=values.offset)
    limit = pa.scalar(10**digits - 1).cast(unscaled)
    is_above = pc.greater(pc.abs(plain), limit).to_numpy(zero_copy_only=False)
    return np.asarray(is_above, dtype=np.int64)


def _floats(values: pa.Array) -> pa.Array:
    kind, form = (_FLOAT, "<f4") if pat.is_float32(values.type) else (_DOUBLE, "<f8")
    numbers = values.to_numpy().astype(form)
    return _fixed(kind, numbers.view(np.uint8).reshape(len(values), -1))


def _dates(values: pa.Array) -> pa.Array:
    days = values.cast(pa.int32()).cast(pa.int64()).to_numpy()
    return _fixed(_DATE, _little_endian(days, 4))


def _timestamps(values: pa.Array) -> pa.Array:
    is_nano, has_zone = values.type.unit == "ns", values.type.tz is not None
    kinds = (_INSTANT_NANOS, _WALL_CLOCK_NANOS) if is_nano else (_INSTANT, _WALL_CLOCK)
    unit = "ns" if is_nano else "us"
    numbers = values.cast(pa.timestamp(unit, tz=values.type.tz)).cast(pa.int64()).to_numpy()
    return _fixed(kinds[0] if has_zone else kinds[1], _little_endian(numbers))


def _times(values: pa.Array) -> pa.Array:
    return _fixed(_TIME, _little_endian(values.cast(pa.int64()).to_numpy()))


def _uuids(values: pa.Array) -> pa.Array:
    octets = np.frombuffer(values.buffers()[1], dtype=np.uint8)[values.offset * _UUID_BYTES :]
    return _fixed(_UUID, octets[: len(values) * _UUID_BYTES].reshape(-1, _UUID_BYTES))


def _texts(values: pa.Array) -> pa.Array:
    values = values.cast(pa.binary())
    lengths = pc.binary_length(values).to_numpy().astype(np.int64)
    is_short = lengths <= _MAX_SHORT_TEXT
    heads = np.where(is_short, lengths << 2 | _SHORT_TEXT, _TEXT << 2).astype(np.uint8)
    return _sized(values, heads, lengths, np.where(is_short, 1, 1 + _COUNT_BYTES))


def _binaries(values: pa.Array) -> pa.Array:
    values = values.cast(pa.binary())
    lengths = pc.binary_length(values).to_numpy().astype(np.int64)
    heads = np.full(len(values), _BINARY << 2, dtype=np.uint8)
    return _sized(values, heads, lengths, np.full(len(values), 1 + _COUNT_BYTES))


def _sized(values: pa.Array, heads: Octets, lengths: Integers, head_bytes: Integers) -> pa.Array:
    matrix = np.concatenate([heads[:, None], _little_endian(lengths, _COUNT_BYTES)], axis=1)
    return joined(rows_of(_kept(matrix, head_bytes), head_bytes, None), values)


_ENCODERS: Mapping[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]] = {
    pat.is_boolean: _booleans,
    pat.is_signed_integer: _integers,
    pat.is_decimal128: _decimals,
    lambda type_: pat.is_float32(type_) or pat.is_float64(type_): _floats,
    pat.is_date32: _dates,
    lambda type_: pat.is_timestamp(type_) and type_.unit != "s": _timestamps,
    lambda type_: pat.is_time64(type_) and type_.unit == "us": _times,
    lambda type_: pat.is_string(type_) or pat.is_large_string(type_): _texts,
    lambda type_: pat.is_binary(type_) or pat.is_large_binary(type_): _binaries,
    lambda type_: pat.is_fixed_size_binary(type_) and type_.byte_width == _UUID_BYTES: _uuids,
}


def joined(*parts: pa.Array) -> pa.Array:
    """Return binary values end to end; null where one of them is null."""
    return pc.binary_join_element_wise(*parts, b"", null_handling="emit_null")


def encode_arrays(counts: Integers, elements: pa.Array) -> pa.Array:
    """Return arrays of `counts` elements each, which lie one after the other in `elements`."""
    ends = _row_ends(counts)
    offsets, widths, data = _offsets(counts, elements, ends)
    is_large = counts > _MAX_SMALL_COUNT
    heads = _ARRAY | (widths - 1) << 2 | is_large.astype(np.int64) << 4
    return joined(_count_heads(heads, counts, is_large), offsets, data)


def encode_objects(counts: Integers, ids: Integers, values: pa.Array) -> pa.Array:
    """Return objects of `counts` fields each, whose names and values lie one after the other."""
    ends = _row_ends(counts)
    offsets, widths, data = _offsets(counts, values, ends)
    largest = np.zeros(len(counts), dtype=np.int64)
    np.maximum.at(largest, np.repeat(np.arange(len(counts)), counts), ids)
    id_widths = _unsigned_widths(largest)
    id_octets = _kept(_little_endian(ids, 4), np.repeat(id_widths, counts))
    is_large = counts > _MAX_SMALL_COUNT
    heads = _OBJECT | (widths - 1) << 2 | (id_widths - 1) << 4 | is_large.astype(np.int64) << 6
    listed = rows_of(id_octets, id_widths * counts, None)
    return joined(_count_heads(heads, counts, is_large), listed, offsets, data)


def _row_ends(counts: Integers) -> Integers:
    ends = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def _offsets(
    counts: Integers, values: pa.Array, ends: Integers
) -> tuple[pa.Array, Integers, pa.Array]:
    """Return the list of offsets of each row, the width of its numbers, and its values."""
    octets, starts = octets_of(values)
    begins = starts[ends]
    sizes = np.diff(begins)
    widths = _unsigned_widths(sizes)
    rows = np.repeat(np.arange(len(counts)), counts + 1)
    # A row has one offset more than values: the end of the last one.
    places = np.arange(len(rows)) - rows
    numbers = starts[places] - begins[rows]
    listed = rows_of(_kept(_little_endian(numbers, 4), widths[rows]), widths * (counts + 1), None)
    data = rows_of(octets[begins[0] : begins[-1]], sizes, None)
    return listed, widths, data


def _count_heads(heads: Integers, counts: Integers, is_large: npt.NDArray[np.bool_]) -> pa.Array:
    lengths = np.where(is_large, 1 + _COUNT_BYTES, 2)
    matrix = np.concatenate(
        [heads.astype(np.uint8)[:, None], _little_endian(counts, _COUNT_BYTES)], axis=1
    )
    return rows_of(_kept(matrix, lengths), lengths, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    """Fields of some objects, one after the other."""

    #: Number of the object that a field belongs to.
    rows: Integers
    #: Position of its name in the object's metadata.
    ids: Integers
    values: pa.Array


def decode_objects(values: pa.Array) -> Fields:
    """Return the fields of variants that are objects; CorruptFileError if one is none."""
    octets, starts = octets_of(values)
    begins, ends = starts[:-1], starts[1:]
    heads = _numbers(octets, begins, np.ones(len(values), dtype=np.int64), ends)
    if (heads & 0b11 != _OBJECT).any():
        raise CorruptFileError("a shredded variant has an object and a value that is no object")
    offset_widths, id_widths = (heads >> 2 & 0b11) + 1, (heads >> 4 & 0b11) + 1
    count_widths = np.where(heads >> 6 & 1, _COUNT_BYTES, 1)
    counts = _numbers(octets, begins + 1, count_widths, ends)
    rows = np.repeat(np.arange(len(values)), counts)
    places = np.arange(len(rows)) - _row_ends(counts)[rows]
    first_id = begins + 1 + count_widths
    first_offset = first_id + counts * id_widths
    first_value = first_offset + (counts + 1) * offset_widths
    ids = _numbers(octets, (first_id[rows] + places * id_widths[rows]), id_widths[rows], ends[rows])
    at = first_offset[rows] + places * offset_widths[rows]
    lows = first_value[rows] + _numbers(octets, at, offset_widths[rows], ends[rows])
    highs = _next_value(rows, lows, ends)
    if (highs <= lows).any():
        raise CorruptFileError("a field of a variant begins behind the end of its object")
    return Fields(rows=rows, ids=ids, values=_slices(octets, lows, highs))


def _next_value(rows: Integers, lows: Integers, ends: Integers) -> Integers:
    """Return where the values of fields end: where the next one of their object begins.

    Values may lie in another order than names, and two fields may share a value.
    """
    distinct, places = np.unique(np.stack([rows, lows]), axis=1, return_inverse=True)
    following = np.append(distinct[1, 1:], 0)
    is_last = np.append(distinct[0, 1:] != distinct[0, :-1], [True])[: distinct.shape[1]]
    highs: Integers = np.where(is_last, ends[distinct[0]], following)[places.reshape(-1)]
    return highs


def _slices(octets: Octets, lows: Integers, highs: Integers) -> pa.Array:
    lengths = highs - lows
    rows = np.repeat(np.arange(len(lows)), lengths)
    places = np.arange(len(rows)) - _row_ends(lengths)[rows]
    return rows_of(octets[lows[rows] + places], lengths, None)


def _numbers(octets: Octets, places: Integers, widths: Integers, ends: Integers) -> Integers:
    """Return unsigned numbers of 1 to 4 bytes; CorruptFileError for one behind its value's end."""
    if (places + widths > ends).any():
        raise CorruptFileError("the bytes of a variant end too early")
    numbers = np.zeros(len(places), dtype=np.int64)
    for position in range(_COUNT_BYTES):
        within = position < widths
        numbers[within] |= octets[places[within] + position].astype(np.int64) << 8 * position
    return numbers


class Names:
    """Names of fields, as the metadata of some variants list them."""

    def __init__(self, metadata: pa.Array, others: Sequence[str]) -> None:
        rows, ids, names = _parse_metadata(metadata)
        more = pa.array([name.encode() for name in others], pa.binary())
        coded = pa.concat_arrays([names, more]).dictionary_encode()
        order = pc.array_sort_indices(coded.dictionary).to_numpy()
        ranks = np.zeros(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        found = ranks[coded.indices.to_numpy()]
        self._ranks = found[: len(names)]
        self._rank_of: dict[str, int] = dict(zip(others, found[len(names) :].tolist(), strict=True))
        self._starts = np.searchsorted(rows, np.arange(len(metadata) + 1))
        self._span = len(order)
        keys = rows * max(self._span, 1) + self._ranks
        # Of a name that is listed twice the first one counts.
        self._keys, first = np.unique(keys, return_index=True)
        self._ids = ids[first]

    def rank_of(self, name: str) -> int:
        """Return the place of a name in the order of all names."""
        return self._rank_of[name]

    def ranks(self, metadata: Integers, ids: Integers) -> Integers:
        """Return the places of names that some metadata list."""
        places = self._starts[metadata] + ids
        if (places >= self._starts[metadata + 1]).any():
            raise CorruptFileError("a variant has a field whose name its metadata does not list")
        found: Integers = self._ranks[places]
        return found

    def ids(self, metadata: Integers, ranks: Integers) -> Integers:
        """Return the positions of names in some metadata."""
        keys = metadata * max(self._span, 1) + ranks
        places = np.searchsorted(self._keys, keys)
        if (places == len(self._keys)).any() or (self._keys[places] != keys).any():
            raise CorruptFileError("a shredded variant has a field that its metadata does not list")
        found: Integers = self._ids[places]
        return found


def _parse_metadata(metadata: pa.Array) -> tuple[Integers, Integers, pa.Array]:
    """Return the names that metadata list: which metadata, the position there, the name."""
    octets, starts = octets_of(metadata)
    begins, ends = starts[:-1], starts[1:]
    heads = _numbers(octets, begins, np.ones(len(metadata), dtype=np.int64), ends)
    if (heads & 0x0F != _METADATA_VERSION).any():
        raise CorruptFileError("the metadata of a variant has a version that lakehand cannot read")
    widths = (heads >> 6) + 1
    counts = _numbers(octets, begins + 1, widths, ends)
    rows = np.repeat(np.arange(len(metadata)), counts)
    ids = np.arange(len(rows)) - _row_ends(counts)[rows]
    at = begins[rows] + 1 + widths[rows] * (1 + ids)
    base = (begins + 1 + widths * (counts + 2))[rows]
    lows = base + _numbers(octets, at, widths[rows], ends[rows])
    highs = base + _numbers(octets, at + widths[rows], widths[rows], ends[rows])
    if ((highs < lows) | (highs > ends[rows])).any():
        raise CorruptFileError("the bytes of a variant's metadata end too early")
    return rows, ids, _slices(octets, lows, highs)
