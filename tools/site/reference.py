"""Write the pages of the API reference: one page for each public package, from its docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cache
from typing import Any

from tools.site.docstrings import Resolve, to_markdown
from tools.site.public import MODULES, Member, Name, can_be_called, keywords, members, names, options_of, public_parents
from tools.site.subjects import SUBJECTS

__all__ = ["addresses", "index_page", "page_name", "reference_pages", "resolver"]

WIDTH = 88
"""A signature that is longer has one parameter on each line."""

_MODULE = re.compile(r"(?<![\w.'\"])(?:[a-z_]\w*\.)+(?=[A-Za-z_])")
"""The module before the name of a type."""


def page_name(module: str) -> str:
    """Return the file name of a package's page."""
    return f"{module}.md"


@cache
def addresses() -> dict[str, str]:
    """Return the address of every public name and member, by its full name.

    A value also has the name of the private module that defines it, because docstrings may use that one.
    """
    found = {module: page_name(module) for module in MODULES}
    for name in names():
        full = f"{name.home}.{name.name}"
        here = f"{page_name(name.home)}#{full}"
        own = f"{getattr(name.value, '__module__', name.home)}.{getattr(name.value, '__qualname__', name.name)}"
        found |= {name.path: here} | ({} if own in found else {own: here})
        if inspect.isclass(name.value):
            for member in all_members(name.value):
                found.setdefault(f"{name.path}.{member.name}", f"{here}.{member.name}")
    return found


def all_members(cls: type) -> list[Member]:
    """Return the members of a class and of its public parents."""
    return [*members(cls), *(member for parent in public_parents(cls) for member in _sbredis_members(parent))]


def _sbredis_members(parent: type) -> list[Member]:
    return all_members(parent) if parent.__module__.startswith("sbredis") else []


@cache
def _bare() -> dict[str, str]:
    """Return the address of every name without its package or class; of several, the first in the reference."""
    found: dict[str, str] = {}
    for full, address in addresses().items():
        if not any(part.startswith("_") for part in full.split(".")):
            found.setdefault(full.rpartition(".")[2], address)
    return found


def resolver(module: str, owner: str = "") -> Resolve:
    """Return how names resolve in the docstrings of a package, or of one of its classes."""
    known, places = addresses(), set(addresses().values())

    def resolve(target: str) -> str | None:
        for full in (f"{module}.{owner}.{target}", f"{module}.{target}", target):
            if full in known:
                return known[full]
        if "." not in target:
            return _bare().get(target)
        head, _, member = target.rpartition(".")
        found = resolve(head.rpartition(".")[2])
        return f"{found}.{member}" if found and f"{found}.{member}" in places else None

    return resolve


@cache
def reference_pages() -> dict[str, str]:
    """Return the text of every page of the reference, by file name."""
    listed = names()
    return {
        "index.md": index_page(listed),
        **{page_name(module): _page(module, [name for name in listed if name.module == module]) for module in MODULES},
    }


def index_page(listed: Sequence[Name]) -> str:
    """Return the page that lists the packages, and all names by alphabet."""
    rows = [
        f"| [`{module}`]({page_name(module)}) | {_summary(importlib.import_module(module))} |" for module in MODULES
    ]
    letters: dict[str, list[str]] = {}
    for name in sorted(listed, key=lambda each: (each.name.lower(), each.module)):
        link = f"[`{name.name}`]({page_name(name.home)}#{name.home}.{name.name}) <small>{name.module}</small>"
        letters.setdefault(name.name[0].upper(), []).append(link)
    return "\n".join(
        [
            "# API reference",
            "",
            "These are the public names of sbredis, from their docstrings.",
            "`sbredis` has the API for code without an event loop, and `sbredis.aio` the API for asyncio.",
            "",
            "| package | contents |",
            "|---|---|",
            *rows,
            "",
            "## All names",
            "",
            *(f"**{letter}**: {' · '.join(links)}\n" for letter, links in letters.items()),
        ]
    )


def _summary(value: Any) -> str:
    first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return to_markdown(first, lambda _: None)


def _page(module: str, listed: list[Name]) -> str:
    resolve = resolver(module)
    doc = (inspect.getdoc(importlib.import_module(module)) or "").split("PYTEST_DONT_REWRITE")[0]
    parts = [f"# {module}", to_markdown(doc, resolve)]
    by_name = {name.name: name for name in listed}
    subjects = SUBJECTS.get(module)
    if subjects is None:
        ordered = sorted(listed, key=lambda each: (not inspect.isclass(each.value), each.name.lower()))
        subjects = {"": [each.name for each in ordered]}
    for subject, members_of_it in subjects.items():
        parts += [f"## {subject}"] if subject else []
        for name in members_of_it:
            entry = _elsewhere(by_name[name]) if by_name[name].home != module else _entry(by_name[name])
            parts += map(_below, entry) if subject else entry
    return "\n\n".join(part for part in parts if part) + "\n"


def _below(part: str) -> str:
    """Return a part of the page with its heading one level lower, below the heading of its subject."""
    return f"#{part}" if re.match(r"##+ ", part) else part


def _elsewhere(name: Name) -> list[str]:
    link = f"[`{name.home}.{name.name}`]({page_name(name.home)}#{name.home}.{name.name})"
    return [f"## {name.name} {{ #{name.path} }}", f"The same as {link}."]


def _entry(name: Name) -> list[str]:
    resolve = resolver(name.module, name.name)
    heading = f"## {name.name} {{ #{name.path} }}"
    if inspect.isclass(name.value):
        return [heading, *_class(name, resolve)]
    if inspect.isroutine(name.value):
        return [heading, *_function(name.name, name.value, resolve)]
    return [heading, _code(f"{name.name} = {_value(name.value)}"), to_markdown(_constant_doc(name), resolve)]


def _constant_doc(name: Name) -> str:
    """Return the string after the assignment of a constant, in the module that its name comes from."""
    for module in (getattr(name.value, "__module__", ""), *_privates(name.module)):
        found = re.search(rf'^{name.name}\b[^\n]*(?:\n .*)*\n\)?"""(.*?)"""', _source(module), re.MULTILINE | re.DOTALL)
        if found:
            return inspect.cleandoc(found[1])
    return ""


def _privates(module: str) -> list[str]:
    """Return the modules of sbredis that a package imports names from."""
    source = _source(module)
    return re.findall(r"^\s*from (sbredis[\w.]*) import", source, re.MULTILINE)


def _source(module: str) -> str:
    try:
        return inspect.getsource(importlib.import_module(module)) if module.startswith("sbredis") else ""
    except (OSError, TypeError):
        return ""


# -- classes -----------------------------------------------------------------------------------------------------------


def _class(name: Name, resolve: Resolve) -> Iterator[str]:
    cls = name.value
    if parents := [_type_link(parent, resolve) for parent in public_parents(cls) if parent is not object]:
        yield f"Inherits from {', '.join(parents)}."
    constructible = can_be_called(cls)
    if constructible and (shown := _signature(cls.__name__, cls)):
        yield _code(shown)
    yield to_markdown(_own_doc(cls), resolve)
    yield from _options(cls.__init__ if constructible else None, resolve)
    own = members(cls)
    yield _attributes(name, [member for member in own if not member.is_function], resolve)
    for member in own:
        if member.is_function:
            yield f"### {member.name} {{ #{name.path}.{member.name} }}"
            kind = "classmethod" if isinstance(member.value, classmethod) else ""
            kind = "staticmethod" if isinstance(member.value, staticmethod) else kind
            yield from _function(member.name, getattr(cls, member.name), resolve, member, kind)


def _own_doc(cls: type) -> str:
    """Return the docstring of a class, but not the text that a dataclass or a named tuple gets by itself."""
    doc = inspect.getdoc(cls) or ""
    return "" if doc.startswith(f"{cls.__name__}(") else doc


def _type_link(parent: type, resolve: Resolve) -> str:
    address = resolve(parent.__name__) if parent.__module__.startswith("sbredis") else None
    return f"`{parent.__name__}`" if address is None else f"[`{parent.__name__}`]({address})"


def _attributes(name: Name, found: Sequence[Member], resolve: Resolve) -> str:
    """Return attributes as a definition list."""
    return "\n".join(
        _definition(
            f"`{member.name}`{{ #{name.path}.{member.name} }}",
            f"= `{member.annotation}`" if isinstance(member.value, Enum) else f"`{_shortened(member.annotation)}`",
            to_markdown(member.doc, resolve),
        )
        for member in found
    )


def _definition(term: str, kind: str, doc: str) -> str:
    """Return one entry of a definition list. The type stands below the name if there is no documentation."""
    term, text = (f"{term} {kind}", doc) if doc and kind != "``" else (term, doc or kind)
    return f"{term}\n:   {textwrap.indent(text, '    ')[4:]}\n"


# -- functions ---------------------------------------------------------------------------------------------------------


def _function(
    name: str, function: Callable[..., Any], resolve: Resolve, member: Member | None = None, kind: str = ""
) -> Iterator[str]:
    decorator = f"@{kind}\n" if kind else ""
    word = "async def " if inspect.iscoroutinefunction(inspect.unwrap(function)) else "def "
    yield _code(decorator + (_signature(word + name, function, method=member is not None) or f"{word}{name}(…)"))
    yield to_markdown(
        (inspect.getdoc(function) if member is None else member.doc or inspect.getdoc(function)) or "", resolve
    )
    yield from _options(function, resolve)


def _options(function: Callable[..., Any] | None, resolve: Resolve) -> Iterator[str]:
    """Yield the keywords that a function takes together as ``**options``."""
    kind = options_of(function) if function is not None else None
    if kind is not None and (found := keywords(kind)):
        yield "The options:"
        yield "\n".join(
            _definition(f"`{option}`", f"`{_shortened(annotation)}`", to_markdown(doc, resolve))
            for option, (annotation, doc) in found.items()
        )


def _signature(name: str, function: Callable[..., Any], *, method: bool = False) -> str | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    given = list(signature.parameters.values())
    if method and given and given[0].name in {"self", "cls"}:
        given = given[1:]
    words = list(_parameters(given))
    result = (
        ""
        if signature.return_annotation in {signature.empty, None, "None"}
        else f" -> {_annotation(signature.return_annotation)}"
    )
    line = f"{name}({', '.join(words)}){result}"
    if len(line) <= WIDTH or not words:
        return line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){result}"])


def _parameters(given: list[inspect.Parameter]) -> Iterator[str]:
    """Yield the parameters as they are written in Python."""
    starred = False
    for place, parameter in enumerate(given):
        if parameter.kind is parameter.VAR_KEYWORD and "NoOptions" in str(parameter.annotation):
            continue  # it warns of unknown keywords
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        stars = "*" * ((parameter.kind is parameter.VAR_POSITIONAL) + 2 * (parameter.kind is parameter.VAR_KEYWORD))
        typed = parameter.annotation is not parameter.empty
        text = f"{stars}{parameter.name}" + (f": {_annotation(parameter.annotation)}" if typed else "")
        if parameter.default is not parameter.empty:
            text += f" = {_value(parameter.default)}" if typed else f"={_value(parameter.default)}"
        yield text
        following = given[place + 1] if place + 1 < len(given) else None
        if parameter.kind is parameter.POSITIONAL_ONLY and (following is None or following.kind is not parameter.kind):
            yield "/"


def _annotation(annotation: object) -> str:
    text = getattr(annotation, "__forward_arg__", annotation)
    return _shortened(text if isinstance(text, str) else inspect.formatannotation(annotation))


def _shortened(annotation: str | None) -> str:
    """Return an annotation without the modules of its types."""
    text = re.sub(r"ForwardRef\('([^']*)'[^)]*\)", r"\1", annotation or "")
    return _MODULE.sub("", text)


def _value(value: object) -> str:
    """Return a default as it is written in Python; an object that cannot be written is an ellipsis."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if inspect.isroutine(value) or inspect.isclass(value):
        return value.__name__
    if type(value) is tuple:
        return f"({', '.join(map(_value, value))}{',' if len(value) == 1 else ''})"
    text = repr(value)
    return "…" if text.startswith("<") else _shortened(text) if text.startswith("collections.abc") else text


def _code(text: str) -> str:
    return f"```python\n{text}\n```"
