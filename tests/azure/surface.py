"""The differences between the public APIs of sbredis and azure.servicebus, found by comparing them.

``azure_surface.json`` describes Azure's API: modules, classes, members, parameters and defaults, enumerations and
exceptions. It was read from the package itself. The comparison finds the differences that a caller would notice: a
missing name, a parameter that cannot be passed as before, another default, a method that must be awaited, and
additions.
"""

from __future__ import annotations

import enum
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from sbredis import exceptions

__all__ = ["AZURE", "differences"]

AZURE: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("azure_surface.json").read_text("utf-8"))
MADE_BY_OTHERS = {"ServiceBusReceivedMessage", "ServiceBusReceiver", "ServiceBusSender", "ServiceBusSession"}
"""Classes that no application constructs. In Azure's library only the client knows the arguments of their constructors.
"""


def differences(azure: Mapping[str, Any] = AZURE) -> list[str]:
    """Return one line for each difference."""
    found = [line for name, names in azure["modules"].items() for line in _module(name, names)]
    return found + list(_exceptions(azure["exceptions"]))


def _module(name: str, theirs: Mapping[str, Any]) -> Iterator[str]:
    module = import_module(name)
    for each, what in theirs.items():
        if each not in module.__all__:
            yield f"{name}.{each}: missing"
        elif "enum" in what:
            ours = {choice.name: choice.value for choice in getattr(module, each)}
            yield from (f"{name}.{each}: {value!r}" for value in what["enum"].items() ^ ours.items())
        elif "members" in what:
            yield from _class(f"{name}.{each}", getattr(module, each), what["members"])
        elif "constant" in what and _plain(getattr(module, each)) != what["constant"]:
            yield f"{name}.{each}: another value"
    yield from (f"{name}.{each}: added" for each in module.__all__ if each not in theirs)


def _class(path: str, cls: type, theirs: Mapping[str, Any]) -> Iterator[str]:
    ours = dict(_members(cls))
    for name, what in theirs.items():
        if name == "__init__":
            if cls.__name__ not in MADE_BY_OTHERS:
                yield from _parameters(path, cls, what)
                yield from _kept(path, cls, what)
        elif name not in ours:
            yield f"{path}.{name}: missing"
        else:
            yield from _member(f"{path}.{name}", ours[name], what)
    constructor = {} if cls.__name__ in MADE_BY_OTHERS else theirs.get("__init__", {})
    constructed = {given["name"] for given in constructor.get("parameters", []) if given != "*args"}
    yield from (f"{path}.{name}: added" for name in ours if name not in theirs and name not in constructed)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods, properties and attributes of a class, including inherited ones, without those of
    ``object``.
    """
    for name in dir(cls):
        owner = next(parent for parent in cls.__mro__ if name in vars(parent))
        if not name.startswith("_") and owner.__module__.startswith(("sbredis", "collections.abc", "_collections_abc")):
            yield name, inspect.getattr_static(cls, name)


def _member(path: str, ours: Any, theirs: Mapping[str, Any]) -> Iterator[str]:
    kind = theirs["kind"]
    if kind in {"property", "attribute"}:
        if inspect.isroutine(ours):
            yield f"{path}: to be called"
        elif theirs.get("settable") and isinstance(ours, property) and ours.fset is None:
            yield f"{path}: not to be set"
        return
    function = ours.__func__ if isinstance(ours, classmethod) else ours
    if not inspect.isroutine(function):
        yield f"{path}: not to be called"
        return
    if inspect.iscoroutinefunction(function) != (kind == "coroutine"):
        yield f"{path}: {'not ' if kind == 'coroutine' else ''}to be awaited"
    yield from _parameters(path, function, theirs, own=1)


def _parameters(path: str, ours: Callable[..., Any], theirs: Mapping[str, Any], own: int = 0) -> Iterator[str]:
    """Yield parameters that cannot be passed as before, other defaults, and additional parameters."""
    parameters = dict(list(inspect.signature(ours).parameters.items())[own:])
    names = list(parameters)
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    known = [given for given in theirs["parameters"] if given != "*args"]
    for place, given in enumerate(known):
        name = given["name"]
        mine = parameters.pop(name, None)
        if mine is not None:
            if not given.get("keyword") and (mine.kind is mine.KEYWORD_ONLY or names.index(name) != place):
                yield f"{path}({name}): at another place"
            yield from _default(f"{path}({name})", mine.default, given)
        # from_connection_string passes unknown keywords to the constructor
        elif not (takes_more and path.endswith(".from_connection_string")):
            yield f"{path}({name}): missing"
    if theirs.get("more") and not takes_more:
        yield f"{path}: refuses other keywords"
    for name, mine in parameters.items():
        if mine.kind in {mine.POSITIONAL_OR_KEYWORD, mine.KEYWORD_ONLY}:
            yield f"{path}({name}): added{'' if mine.default is not mine.empty else ', and needed'}"


def _default(path: str, ours: Any, theirs: Mapping[str, Any]) -> Iterator[str]:
    if "default" not in theirs:
        if ours is not inspect.Parameter.empty:
            yield f"{path}: may be left out"
    elif ours is inspect.Parameter.empty:
        yield f"{path}: may not be left out"
    elif _plain(ours) != theirs["default"]:
        yield f"{path}: {_plain(ours)!r} unless said, not {theirs['default']!r}"


def _kept(path: str, cls: type, theirs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the constructor arguments of a properties class that cannot be read from its objects."""
    if not path.endswith(("Properties", "Rule")):
        return
    for given in theirs["parameters"]:
        if not hasattr(cls, given["name"]):
            yield f"{path}.{given['name']}: missing"


def _exceptions(theirs: Mapping[str, Any]) -> Iterator[str]:
    for name, what in theirs.items():
        ours = getattr(exceptions, name, None)
        if ours is None:
            yield f"sbredis.exceptions.{name}: missing"
            continue
        yield from (
            f"sbredis.exceptions.{name}: no {base}"
            for base in what["bases"]
            if base not in {parent.__name__ for parent in ours.__mro__}
        )
        if name != "MessageAlreadySettled" and ours.is_transient is not what["transient"]:
            yield f"sbredis.exceptions.{name}: {'' if ours.is_transient else 'not '}transient"
    yield from (f"sbredis.exceptions.{name}: added" for name in exceptions.__all__ if name not in theirs)


def _plain(value: Any) -> Any:
    """Return a default as JSON represents it."""
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value) if type(value).__module__.startswith("sbredis.") else "unset"
