"""Properties with their types, as structs of Arrow: they are made of the values of messages, and read back.

A struct says its type, and has its value in the field for this type. The field ``text`` always has the value as text,
and ``number`` has every number, so that Spark can compare numbers of all types. Of whole numbers without a sign,
decimals and UUIDs, only the text is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from sbredis._quoting import quoted
from sbredis.engine import Maps, Value, encoded_value

__all__ = ["TypedValues", "encoded_values", "typed_values"]

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_LARGEST = (1 << 63) - 1
_BYTES_OF: Mapping[str, pa.DataType] = {"text": pa.binary(), "time": pa.int64()}
"""The types as which fields are read, if it is not their own: texts are checked later, and times may be of any year."""


def typed_values(column: Maps, kind: pa.DataType) -> pa.Array:
    """Return a struct for each property of all rows."""
    assert isinstance(kind, pa.StructType)
    count = len(column.names.offsets) - 1
    types = ["text"] * count
    names = [field.name for field in kind] if column.typed else []
    fields: dict[str, list[Any]] = {name: [None] * count for name in names}
    for place, value in column.typed.items():
        types[place], own = _described(value)
        for name, part in own.items():
            fields[name][place] = part
    made: list[pa.Array] = []
    for field in kind:
        if field.name == "type":
            made.append(pa.array(types, field.type))
        elif field.name == "text":
            valid = None if column.values.valid is None else pa.py_buffer(column.values.valid)
            buffers = [valid, pa.py_buffer(column.values.offsets), pa.py_buffer(column.values.data)]
            made.append(pa.Array.from_buffers(field.type, count, buffers))
        else:
            listed = fields.get(field.name)
            made.append(pa.nulls(count, field.type) if listed is None else pa.array(listed, field.type))
    return pa.StructArray.from_arrays(made, fields=list(kind))


def _described(value: Value) -> tuple[str, dict[str, Any]]:
    """Return the type of a value that is not text, and the fields that it has besides its text."""
    match value:
        case None:
            return "none", {}
        case bool():
            return "boolean", {"boolean": value}
        case int():
            return "integer", {"integer": value if value <= _LARGEST else None, "number": float(value)}
        case float():
            return "float", {"number": value}
        case Decimal():
            return "decimal", {"number": float(value)}
        case datetime():
            return "time", {"time": (value - _EPOCH) // _MICROSECOND}
        case bytes():
            return "bytes", {"bytes": value}
        case UUID():
            return "uuid", {}
        case list():
            return "list", {}
        case _:
            return "map", {}


class TypedValues(NamedTuple):
    """Properties in the form of a payload."""

    values: list[bytes | None]
    kinds: list[bytes]
    wrong: dict[int, str]
    """Why some of them cannot be sent, by their places."""


class _Fields:
    """The fields of structs, as Python values."""

    def __init__(self, structs: pa.Array) -> None:
        self._structs = structs
        self._lists: dict[str, list[Any]] = {}

    def of(self, name: str) -> list[Any]:
        """Return the values of one field. A struct that is null has none."""
        if name not in self._lists:
            column = pc.struct_field(self._structs, name)
            self._lists[name] = column.cast(_BYTES_OF.get(name, column.type)).to_pylist()
        return self._lists[name]

    def needed(self, name: str, place: int) -> Any:
        """Return one value. Raise :class:`ValueError` if it is null."""
        value = self.of(name)[place]
        if value is None:
            raise ValueError(f"no value in its field {name}")
        return value

    def text(self, place: int) -> str:
        found: bytes = self.needed("text", place)
        return found.decode()

    def integer(self, place: int) -> int:
        found: int | None = self.of("integer")[place]
        return int(self.text(place)) if found is None else found


_TYPES: Mapping[str, Callable[[_Fields, int], Value]] = {
    "none": lambda _, __: None,
    "boolean": lambda fields, place: fields.needed("boolean", place),
    "integer": lambda fields, place: fields.integer(place),
    "float": lambda fields, place: fields.needed("number", place),
    "decimal": lambda fields, place: Decimal(fields.text(place)),
    "time": lambda fields, place: _EPOCH + fields.needed("time", place) * _MICROSECOND,
    "bytes": lambda fields, place: fields.needed("bytes", place),
    "uuid": lambda fields, place: UUID(fields.text(place)),
}
"""How a value is read, by its type. Text is read without a function."""


def encoded_values(structs: pa.Array, names: Iterable[bytes]) -> TypedValues:
    """Return properties in the form of a payload, given a struct for each of them."""
    fields = _Fields(structs)
    made = TypedValues([], [], {})
    for place, (kind, text, name) in enumerate(zip(fields.of("type"), fields.of("text"), names, strict=True)):
        letter, value = b"s", text
        if kind != "text" or text is None:
            try:
                letter, value = _encoded(fields, place, kind)
            except (ValueError, OverflowError, InvalidOperation) as error:
                why = str(error) if isinstance(error, ValueError) else "a value that cannot be read"
                made.wrong[place] = f"its property {quoted(name.decode(errors='replace'))} of the type {kind} has {why}"
                value = None
        made.values.append(value)
        made.kinds.append(letter)
    return made


def _encoded(fields: _Fields, place: int, kind: str | None) -> tuple[bytes, bytes]:
    if kind is None and all(each[place] is None for each in map(fields.of, ("boolean", "integer", "number", "text"))):
        kind = "none"
    if kind == "text":
        fields.needed("text", place)
    if kind is None or kind not in _TYPES:
        raise ValueError(f"no type that a message can have; the types are text, {', '.join(_TYPES)}")
    return encoded_value(_TYPES[kind](fields, place), "")
