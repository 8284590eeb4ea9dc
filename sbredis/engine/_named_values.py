"""The mapping of a message's application properties, and of its annotations."""

from __future__ import annotations

from typing import Any

__all__ = ["NamedValues"]


class NamedValues(dict[str, Any]):
    """A mapping from names to values. The names are text.

    A name may also be looked up as bytes, as programs for Azure Service Bus do. The lookup then decodes the bytes as
    UTF-8, unless the mapping has a value under the bytes themselves.
    """

    __slots__ = ()

    def __missing__(self, name: object) -> Any:
        found = _text(name)
        if found is None or not super().__contains__(found):
            raise KeyError(name)
        return super().__getitem__(found)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or super().__contains__(_text(name))

    def get(self, name: Any, default: Any = None) -> Any:
        """Return the value of a name; ``default`` if there is none."""
        try:
            return self[name]
        except KeyError:
            return default

    def copy(self) -> NamedValues:
        """Return a copy of this mapping, of the same class."""
        return NamedValues(self)


def _text(name: object) -> str | None:
    """Return a name in bytes as text; ``None`` if it is not bytes or not UTF-8."""
    if not isinstance(name, bytes):
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None
