"""Shredded variants, whose fields are stored as separate columns, put together again.

The layout is that of VariantShredding.md (https://github.com/apache/parquet-format): a group of
`metadata`, `value` and `typed_value`, in which fields and elements are groups of the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakehand.errors import CorruptFileError
from lakehand.parquet import variant_encoding as encoding
from lakehand.parquet.columns import is_any_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

METADATA, VALUE, TYPED_VALUE = "metadata", "value", "typed_value"


def unreadable_type(type_: pa.DataType) -> pa.DataType | None:
    """Return the type of a `typed_value` that no variant has; None if all can be put together."""
    if pat.is_struct(type_):
        groups = [field.type for field in type_]
    elif is_any_list(type_):
        groups = [type_.value_type]
    else:
        return None if encoding.can_encode(type_) else type_
    for group in groups:
        if not pat.is_struct(group) or not {field.name for field in group} <= {VALUE, TYPED_VALUE}:
            return group
        typed = group.get_field_index(TYPED_VALUE)
        if typed >= 0 and (found := unreadable_type(group.field(typed).type)) is not None:
            return found
    return None


def reassemble(shredded: pa.StructArray) -> pa.Array:
    """Return the values of variants; CorruptFileError if their parts do not fit together."""
    is_there = shredded.is_valid().to_numpy(zero_copy_only=False)
    parts = _parts(shredded)
    present = np.flatnonzero(is_there)
    metadata = parts.pop(METADATA).take(pa.array(present)).cast(pa.binary()).dictionary_encode()
    if metadata.null_count:
        raise CorruptFileError("a variant has no metadata")
    names = encoding.Names(metadata.dictionary, sorted(set(_field_names(shredded.type))))
    owners = np.zeros(len(shredded), dtype=np.int64)
    owners[present] = metadata.indices.to_numpy()
    values = _Assembly(names).values(parts, owners)
    # Where a value is required and none is stored, it is a null of the variant.
    return pc.if_else(pa.array(is_there), pc.fill_null(values, encoding.NULL_VALUE), None)


def _parts(group: pa.StructArray) -> dict[str, pa.Array]:
    """Return the members of a group, null where the group is."""
    return dict(zip((field.name for field in group.type), group.flatten(), strict=True))


def _field_names(type_: pa.DataType) -> Iterator[str]:
    position = type_.get_field_index(TYPED_VALUE)
    typed = type_.field(position).type if position >= 0 else pa.null()
    if pat.is_struct(typed):
        for field in typed:
            yield field.name
            yield from _field_names(field.type)
    elif is_any_list(typed):
        yield from _field_names(typed.value_type)


@dataclass(frozen=True, slots=True)
class _Assembly:
    """Puts groups together whose metadata list these names."""

    names: encoding.Names

    def values(self, group: dict[str, pa.Array], owners: Integers) -> pa.Array:
        """Return one value per row of a group; null where nothing is stored.

        `owners` numbers the metadata of each row.
        """
        typed = group.get(TYPED_VALUE)
        plain = group.get(VALUE)
        plain = pa.nulls(len(owners), pa.binary()) if plain is None else plain.cast(pa.binary())
        if typed is None:
            return plain
        present = np.flatnonzero(typed.is_valid().to_numpy(zero_copy_only=False))
        held, rest = typed.take(pa.array(present)), plain.take(pa.array(present))
        if pat.is_struct(typed.type):
            built = self._objects(held, rest, owners[present])
        elif rest.null_count != len(rest):
            raise CorruptFileError("a shredded variant has two values that exclude each other")
        elif is_any_list(typed.type):
            built = self._arrays(held, owners[present])
        else:
            built = encoding.encode_primitive(held)
        return _placed(built, present, plain)

    def _arrays(self, lists: pa.Array, owners: Integers) -> pa.Array:
        plain = lists.cast(pa.list_(lists.type.value_field))
        counts = plain.value_lengths().to_numpy().astype(np.int64)
        elements = self.values(_parts(plain.flatten()), np.repeat(owners, counts))
        return encoding.encode_arrays(counts, pc.fill_null(elements, encoding.NULL_VALUE))

    def _objects(self, typed: pa.StructArray, rest: pa.Array, owners: Integers) -> pa.Array:
        """Return objects made of their shredded fields and of those that were not shredded."""
        rows, ranks, values = [], [], []
        for field, group in zip(typed.type, typed.flatten(), strict=True):
            found = self.values(_parts(group), owners)
            held = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            rows.append(held)
            ranks.append(np.full(len(held), self.names.rank_of(field.name), dtype=np.int64))
            values.append(found.take(pa.array(held)))
        others = np.flatnonzero(rest.is_valid().to_numpy(zero_copy_only=False))
        fields = encoding.decode_objects(rest.take(pa.array(others)))
        rows.append(others[fields.rows])
        ranks.append(self.names.ranks(owners[rows[-1]], fields.ids))
        values.append(fields.values)
        return self._encode(np.concatenate(rows), np.concatenate(ranks), values, owners)

    def _encode(
        self, rows: Integers, ranks: Integers, values: list[pa.Array], owners: Integers
    ) -> pa.Array:
        order = np.lexsort((ranks, rows))
        rows, ranks = rows[order], ranks[order]
        if ((rows[1:] == rows[:-1]) & (ranks[1:] == ranks[:-1])).any():
            raise CorruptFileError("a shredded variant has a field twice")
        counts = np.bincount(rows, minlength=len(owners)).astype(np.int64)
        ids = self.names.ids(owners[rows], ranks)
        sorted_values = pa.concat_arrays(values).take(pa.array(order))
        return encoding.encode_objects(counts, ids, sorted_values)


def _placed(built: pa.Array, places: Integers, others: pa.Array) -> pa.Array:
    """Return `others` with values at some places replaced."""
    choice = np.arange(len(others), dtype=np.int64)
    choice[places] = len(others) + np.arange(len(built))
    return pa.concat_arrays([others, built]).take(pa.array(choice))
