"""The mapping in which a message has its application properties and its annotations."""

from __future__ import annotations

from typing import Any

__all__ = ["NamedValues"]


class NamedValues(dict[str, Any]):
    """Values by their names, which are text.

    A name may also be looked up in bytes, as programs for Azure Service Bus do: it finds the value of the same name in
    UTF-8, unless there is one under these bytes themselves.
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
        """The value of a name; ``default`` if there is none."""
        try:
            return self[name]
        except KeyError:
            return default

    def copy(self) -> NamedValues:
        """The same values in another mapping of this kind."""
        return NamedValues(self)


def _text(name: object) -> str | None:
    """A name in bytes as text; ``None`` if it is none."""
    if not isinstance(name, bytes):
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None
