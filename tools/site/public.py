"""Find the public names of sbredis, and their members, by importing the packages that list them.

The names are read from the imported packages and not from the source, so they are as ``help()`` shows them:
``inspect.signature`` shows the keywords that a function takes together as ``**``, and a property of an entity has its
documentation. Packages that need PySpark are read without it: see :mod:`tools.site.stand_ins`.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import datetime as dt
import importlib
import inspect
import pathlib
import re
import typing
from collections.abc import Iterator
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, is_typeddict

from tools.site.stand_ins import stand_ins
from tools.site.subjects import PLUMBING

__all__ = [
    "MODULES",
    "Member",
    "Name",
    "attribute_docs",
    "can_be_called",
    "keywords",
    "members",
    "names",
    "options_of",
    "public_parents",
]

MODULES = [
    "sbredis",
    "sbredis.aio",
    "sbredis.management",
    "sbredis.aio.management",
    "sbredis.amqp",
    "sbredis.workers",
    "sbredis.testing",
    "sbredis.codec",
    "sbredis.servers",
    "sbredis.spark",
    "sbredis.spark.jobs",
    "sbredis.spark.progress",
    "sbredis.exceptions",
]
"""The packages whose ``__all__`` lists public names. ``sbredis.sync`` lists names that ``sbredis`` lists too."""


_KNOWN = [builtins, collections.abc, dt, pathlib, typing]
"""The modules whose types are known to readers."""


class Name(NamedTuple):
    """A public name of a package."""

    module: str
    name: str
    value: Any
    home: str
    """The package whose page describes the value. It is another one if several packages list the same value."""

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


class Member(NamedTuple):
    """A public member of a class: a method, a property, or an attribute."""

    name: str
    value: Any
    """``None`` for an attribute that only an annotation declares."""
    owner: type
    """The class that defines the member."""
    doc: str
    annotation: str | None

    @property
    def is_function(self) -> bool:
        return inspect.isroutine(self.function)

    @property
    def function(self) -> Any:
        """Return the function of a static method or class method; otherwise the value."""
        return self.value.__func__ if isinstance(self.value, staticmethod | classmethod) else self.value


@cache
def names() -> tuple[Name, ...]:
    """Return all public names, in the order of ``MODULES`` and of their ``__all__``."""
    with stand_ins():
        packages = {module: importlib.import_module(module) for module in MODULES}
    listed = [
        (module, name, getattr(package, name))
        for module, package in packages.items()
        for name in package.__all__
        if not name.startswith("__")
    ]
    return tuple(Name(module, name, value, _home(name, value, listed)) for module, name, value in listed)


@cache
def _public() -> frozenset[int]:
    return frozenset(id(name.value) for name in names())


def _home(name: str, value: Any, listed: list[tuple[str, str, Any]]) -> str:
    """Return the package that defines the value, or else the first one that lists it."""
    candidates = [module for module, other, same in listed if other == name and same is value]
    defined = getattr(value, "__module__", None) or ""
    within = [module for module in candidates if f"{defined}.".startswith(f"{module}.")]
    return max(within, key=len) if within else candidates[0]


def public_parents(cls: type) -> list[type]:
    """Return the nearest parent classes that are public themselves or are not part of sbredis."""
    found: list[type] = []
    for parent in cls.__bases__:
        if id(parent) in _public() or not parent.__module__.startswith("sbredis"):
            found.append(parent)
        else:
            found += public_parents(parent)
    return [parent for parent in dict.fromkeys(found) if parent.__module__ not in {"typing", "abc"}]


def members(cls: type) -> tuple[Member, ...]:
    """Return the public members of a class, without plumbing and without those that a public parent describes."""
    left_out = PLUMBING.get(cls.__name__, frozenset())
    return tuple(member for member in _members(cls) if member.name not in left_out)


@cache
def _members(cls: type) -> tuple[Member, ...]:
    described = {ancestor for parent in public_parents(cls) for ancestor in parent.__mro__}
    found: dict[str, Member] = {}
    for owner in cls.__mro__:
        if owner in described or owner is object or not owner.__module__.startswith("sbredis"):
            continue
        notes = inspect.get_annotations(owner)
        typed = keywords(owner) if is_typeddict(owner) else {}
        docs = {name: doc for name, (_, doc) in typed.items()} if typed else attribute_docs(owner)
        for name in (*vars(owner), *(name for name in {**notes, **docs} if name not in vars(owner))):
            if not name.startswith("_") and name not in found:
                found[name] = _member(name, owner, docs.get(name), notes.get(name))
    return tuple(member for member in found.values() if member.is_function or member.doc or member.annotation)


def _member(name: str, owner: type, doc: str | None, annotation: object) -> Member:
    value = vars(owner).get(name)
    if isinstance(value, property):
        annotation = value.fget.__annotations__.get("return") if value.fget else None
    elif annotation is None and hasattr(type(value), "__get__") and not inspect.isroutine(value):
        annotation = _assigned_type(owner, name)
    documents = inspect.isroutine(value) or isinstance(value, property) or type(value).__module__.startswith("sbredis")
    own = inspect.getdoc(getattr(owner, name)) if documents else None
    if isinstance(value, Enum):
        shown: str | None = repr(value.value)
    elif annotation is None or isinstance(annotation, str):
        shown = annotation
    else:
        shown = inspect.formatannotation(annotation)
    return Member(name, value, owner, doc or own or "", shown)


def _assigned_type(owner: type, name: str) -> str | None:
    """Return the type of a property that a descriptor implements: what the constructor takes for it."""
    try:
        parameter = inspect.signature(owner).parameters.get(name)
    except ValueError:
        return None
    return None if parameter is None or parameter.annotation is parameter.empty else str(parameter.annotation)


@cache
def attribute_docs(owner: type) -> dict[str, str]:
    """Return the strings after the declarations of attributes, in the class and in its constructor."""
    made = _definition(owner.__module__, owner.__qualname__)
    if made is None:
        return {}
    bodies = [
        made.body,
        *(node.body for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"),
    ]
    return {
        name: inspect.cleandoc(text)
        for body in bodies
        for declaration, after in pairwise(body)
        for name, text in _documented(declaration, after)
    }


def _definition(module: str, qualified: str) -> ast.ClassDef | None:
    """Return where a class is defined, or None.

    A class may give another module as its own than the one that defines it; then that module imports it.
    ``inspect.getsource`` does not follow the import. Which lines it returns instead depends on Python's version.
    """
    outer, *inner = qualified.split(".")
    for statement in _statements(module):
        match statement:
            case ast.ImportFrom(module=str(source), names=imported) if outer in {each.name for each in imported}:
                return _definition(source, qualified)
            case ast.ClassDef(name=name) if name == outer:
                found: ast.ClassDef | None = statement
                for name in inner:
                    of_this = [each for each in found.body if isinstance(each, ast.ClassDef)] if found else []
                    found = next((each for each in of_this if each.name == name), None)
                return found
            case _:
                pass
    return None


@cache
def _statements(module: str) -> list[ast.stmt]:
    """Return the statements of a module of sbredis."""
    return ast.parse(inspect.getsource(importlib.import_module(module))).body


def _documented(declaration: ast.stmt, after: ast.stmt) -> Iterator[tuple[str, str]]:
    match declaration, after:
        case (
            ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)])
            | ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)),
            ast.Expr(value=ast.Constant(value=str(text))),
        ):
            yield name, text
        case _:
            pass


def can_be_called(cls: type) -> bool:
    """Return whether users make objects of a class: its constructor needs no object that only sbredis can make."""
    if issubclass(cls, Enum) or is_typeddict(cls) or getattr(cls, "_is_protocol", False):
        return False
    try:
        given = inspect.signature(cls).parameters.values()
    except ValueError:
        return False
    needed = [each for each in given if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    words = {word for each in needed for word in re.findall(r"\b(?<!')[A-Z]\w+", str(each.annotation))}
    known = {name.name for name in names()}
    return all(word in known or any(hasattr(module, word) for module in _KNOWN) for word in words)


def options_of(function: Any) -> type | None:
    """Return the ``TypedDict`` whose keys a function takes as keywords and does not show in its signature."""
    for parameter in inspect.signature(function).parameters.values():
        found = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        if parameter.kind is parameter.VAR_KEYWORD and found:
            kind = inspect.unwrap(function).__globals__.get(found[1])
            return kind if is_typeddict(kind) else None
    return None


def keywords(kind: type) -> dict[str, tuple[str, str]]:
    """Return the types and the documentation of the keys of a ``TypedDict``, by name."""
    docs: dict[str, str] = {}
    for parent in (*getattr(kind, "__orig_bases__", ()), kind):
        if is_typeddict(parent):
            docs |= (
                {name: doc for name, (_, doc) in keywords(parent).items()}
                if parent is not kind
                else attribute_docs(parent)
            )
    return {
        name: (getattr(annotation, "__forward_arg__", None) or inspect.formatannotation(annotation), docs.get(name, ""))
        for name, annotation in kind.__annotations__.items()
    }
