"""Write the façade modules of ``sbredis/sync``: read the modules of ``sbredis/aio`` as trees, and their texts as text.

A signature and a docstring are taken over as text, so that they keep their form and their comments.
"""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tools.make_sync.rules import (
    BY_HAND,
    COPIED,
    DIFFERENT,
    DIRECT,
    FACADES,
    FIRST,
    HOMES,
    INHERITED,
    INTERNAL_BASES,
    KEYWORDS,
    LAST,
    LAST_IN_MODULE,
    MADE,
    MODULES,
    PARAGRAPHS,
    RECORDING,
    SPECIAL,
    SUMMARIES,
    TWIN_ATTRIBUTE,
    TWINS,
    TYPES,
    UNDOABLE,
    WITHOUT,
    WORDS,
)
from tools.repository import ROOT

__all__ = ["RuleMissingError", "formatted", "made_modules", "reworded"]

AIO: Final = ROOT / "sbredis/aio"
SYNC: Final = ROOT / "sbredis/sync"


class RuleMissingError(Exception):
    """Something of the asynchronous API for which the tool has no rule. The text says what to add, and where."""


# -- reading -----------------------------------------------------------------------------------------------------------

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """A module of the asynchronous API: its text, its tree, and its imports."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = AIO / f"{name}.py"
        self.text = self.path.read_text("utf-8")
        self.tree = ast.parse(self.text)
        self.lines = self.text.splitlines()

    @property
    def dotted(self) -> str:
        """The name of the module."""
        return "sbredis.aio." + self.name.replace("/", ".")

    @property
    def summary(self) -> str:
        """The docstring of the module that is made from this one."""
        return SUMMARIES.get(self.name) or (ast.get_docstring(self.tree) or "").splitlines()[0]

    @property
    def public_classes(self) -> list[ast.ClassDef]:
        """The classes of the module that need a façade."""
        return [each for each in self.tree.body if isinstance(each, ast.ClassDef) and not each.name.startswith("_")]

    @cached_property
    def imports(self) -> dict[str, str]:
        """The names that the module imports, and the modules from which it imports them."""
        return {
            name.asname or name.name: node.module
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for name in node.names
        }

    def defined(self, name: str) -> ast.stmt | None:
        """Return the statement of the module that defines a name."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | _Function) and node.name == name:
                return node
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                return node
        return None

    def between(self, begin: tuple[int, int], end: tuple[int, int]) -> str:
        """Return the text from one place, a line and a column, to another."""
        (first, at), (last, until) = begin, end
        lines = self.lines[first - 1 : last]
        lines[-1] = lines[-1].encode()[:until].decode()
        lines[0] = lines[0].encode()[at:].decode()
        return "\n".join(lines)

    def text_of(self, node: ast.stmt | ast.expr) -> str:
        """Return the text of a statement or an expression."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.between((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))

    def heading_before(self, node: ast.stmt, after: int) -> str:
        """Return the comment that begins a section, if there is one between a line and a statement."""
        return "".join(f"{line}\n\n" for line in self.lines[after : node.lineno - 1] if line.startswith("    # -- "))


def docstring(node: ast.ClassDef | _Function) -> ast.expr | None:
    """Return the docstring of a class or a function, as it is in the tree."""
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first.value
    return None


def reworded(text: str) -> str:
    """Return a docstring with the words of synchronous code."""
    for word, instead in WORDS:
        text = text.replace(word, instead)
    return text


# -- writing -----------------------------------------------------------------------------------------------------------


def block(text: str, indent: int) -> str:
    """Return a text of the tables above with another indent."""
    return textwrap.indent(textwrap.dedent(text).strip("\n"), " " * indent).rstrip(" ") + "\n"


class FacadeWriter:
    """Writes the façade of one class."""

    def __init__(self, source: Source, cls: ast.ClassDef) -> None:
        self.source = source
        self.cls = cls
        self.twin = f"self.{TWIN_ATTRIBUTE.get(cls.name, '_aio')}"

    def text(self) -> str:
        """Return the text of the façade."""
        return f"{self._head()}{self._docstring()}\n{''.join(self._members())}"

    @property
    def _is_group(self) -> bool:
        """Whether this is a group of calls of the administration client, which is no public class."""
        return self.cls.name.endswith("Administration")

    def _head(self) -> str:
        bases: list[str] = []
        for base in map(ast.unparse, self.cls.bases):
            if base.startswith("AsyncIterator["):
                bases.append(base.removeprefix("Async"))
            elif base not in INTERNAL_BASES:
                bases.append(base)
        if not any(base.startswith("ServiceBus") or base.endswith("Administration") for base in bases):
            twin = "ServiceBusAdministrationClient" if self._is_group else self.cls.name
            bases.insert(0, f"Facade[aio.{twin}]")
        mark = "" if self._is_group else "@public\n"
        return f"{mark}class {self.cls.name}({', '.join(bases)}):\n"

    def _docstring(self) -> str:
        found = docstring(self.cls)
        if found is None:
            raise RuleMissingError(f"{self.source.path}: {self.cls.name} has no docstring. Write one there.")
        text = reworded(self.source.text_of(found))
        more = PARAGRAPHS.get(self.cls.name)
        if more is not None:
            text = text.removesuffix('"""').rstrip() + f'\n\n{block(more, 4)}    """'
        return f"    {text}\n"

    def _members(self) -> Iterator[str]:
        yield block(FIRST[self.cls.name], 4) + "\n" if self.cls.name in FIRST else ""
        names = {each.name for each in self.cls.body if isinstance(each, _Function)}
        for table in (DIFFERENT, UNDOABLE, dict.fromkeys(DIRECT), dict.fromkeys(INHERITED)):
            for key in table:
                if key.partition(".")[0] == self.cls.name and key.partition(".")[2] not in names:
                    raise RuleMissingError(f"{self.source.path} has no {key}. Remove it from the tables of make_sync.")
        after, heading = self.cls.lineno, ""
        for place, node in enumerate(self.cls.body):
            heading = self.source.heading_before(node, after) or heading
            assert node.end_lineno is not None
            after, text = node.end_lineno, ""
            if isinstance(node, _Function):
                text = self._function(node)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
                text = self._attribute(node, node.target.id, self.cls.body[place + 1])
            if text:
                yield heading + text
                heading = ""
        yield block(LAST[self.cls.name], 4) + "\n" if self.cls.name in LAST else ""

    def _attribute(self, node: ast.AnnAssign, name: str, after: ast.stmt) -> str:
        if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
            raise RuleMissingError(f"{self.source.path}: {self.cls.name}.{name} has no docstring. Write one there.")
        return (
            f"    @property\n    def {name}(self) -> {ast.unparse(node.annotation)}:\n"
            f"        {reworded(self.source.text_of(after))}\n        return {self.twin}.{name}\n\n"
        )

    def _function(self, node: _Function) -> str:
        key = f"{self.cls.name}.{node.name}"
        is_public = not node.name.startswith("_") or node.name in SPECIAL or key in DIFFERENT
        if not is_public or key in INHERITED:
            return ""
        decorators = "".join(f"    @{self.source.text_of(each)}\n" for each in node.decorator_list)
        first = node.body[0]
        head = self.source.between((node.lineno, node.col_offset), (first.lineno, first.col_offset))
        head = head.replace(f" {node.name}(", f" {SPECIAL.get(node.name, node.name)}(", 1).rstrip()
        head = f"{decorators}    {head}"
        for pattern, instead in TYPES:
            head = re.sub(pattern, instead, head)
        if _decorated(node, "overload"):
            return f"{head} ...\n\n"
        different = textwrap.dedent(DIFFERENT.get(key, "")).strip("\n")
        found = docstring(node)
        said = ""
        if found is not None and not different.startswith('"""'):
            said = f"        {reworded(self.source.text_of(found))}\n"
        return f"{head}\n{said}{block(different or self._body(node, key), 8)}\n"

    def _body(self, node: _Function, key: str) -> str:
        """Return the body that the kind of a member asks for."""
        name, returned = node.name, "" if node.returns is None else ast.unparse(node.returns)
        if _decorated(node, "property"):
            return f"return {self.twin}.{name}"
        if _decorated(node, f"{name}.setter"):
            return f'self._bridge.make(setattr, {self.twin}, "{name}", value)'
        if name in SPECIAL or name == "close":
            return self._opening_or_closing(node)
        before, given = self._arguments(node)
        comma = f", {given}" if given else ""
        back = "" if returned == "None" else "return "
        if isinstance(node, ast.AsyncFunctionDef):
            call = f"call_undoable({UNDOABLE[key]}, " if key in UNDOABLE else "call("
            return f"{before}{back}self._bridge.{call}{self.twin}.{name}{comma})"
        if key in DIRECT:
            return f"{before}return {self.twin}.{name}({given})"
        if self.cls.name in RECORDING:
            return f"{before}{back}self._bridge.run({self.twin}.{name}{comma})"
        if returned.startswith("AsyncItemPaged["):
            return f"{before}return ItemPaged(self._bridge, {self.twin}.{name}({given}))"
        if returned in FACADES:
            make = f"{self.twin}.{name}{comma}"
            if self._is_overloaded(name):  # a type checker cannot choose an overload by the arguments of `make`
                make = f"lambda: {self.twin}.{name}({given})"
            return f"{before}made = self._bridge.make({make})\nreturn {FACADES[returned]}(self._bridge, made)"
        raise RuleMissingError(
            f"{self.source.path}: tools/make_sync has no rule for {key}, which is no coroutine function and returns "
            f"{returned or 'nothing'}. Add {key!r} to DIRECT if the caller's thread may call it, or its body to "
            "DIFFERENT."
        )

    def _opening_or_closing(self, node: _Function) -> str:
        """Return the body of a special method, or of ``close``."""
        if node.name == "__aenter__":
            return f"self._bridge.call({self.twin}.__aenter__)\nreturn self"
        if node.name == "__aiter__":
            return "return self"
        if node.name == "__aexit__" and node.args.vararg is not None:
            return "self.close()"
        if node.name == "__aexit__":
            return f"self._bridge.finish(partial({self.twin}.__aexit__, kind, error, traceback))"
        if node.name == "close":
            _, given = self._arguments(node)
            close = f"{self.twin}.close"
            return f"self._bridge.finish({f'partial({close}, {given})' if given else close})"
        raise RuleMissingError(f"{self.source.path}: add the body of {self.cls.name}.{node.name} to DIFFERENT.")

    def _is_overloaded(self, name: str) -> bool:
        return any(isinstance(x, _Function) and x.name == name and _decorated(x, "overload") for x in self.cls.body)

    def _arguments(self, node: _Function) -> tuple[str, str]:
        """Return the statements before the call, and the arguments of the call."""
        passed = [self._passed(each) for each in (*node.args.posonlyargs, *node.args.args) if each.arg != "self"]
        passed += [f"{each.arg}={self._passed(each)}" for each in node.args.kwonlyargs]
        before, keywords = "", node.args.kwarg
        if keywords is not None:
            kind = "" if keywords.annotation is None else ast.unparse(keywords.annotation)
            check = KEYWORDS.get(kind.removeprefix("Unpack[").removesuffix("]"))
            if check is not None:
                before = f"given = {check.format(name=node.name)}\n"
            passed.append(f"**{keywords.arg if check is None else 'given'}")
        return before, ", ".join(passed)

    def _passed(self, argument: ast.arg) -> str:
        """Return what is passed on for an argument."""
        kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
        if kind in TWINS:
            return f'twin_for({argument.arg}, {kind}, "{TWINS[kind]}")'
        if kind.startswith("Iterable["):
            return f"list({argument.arg})"  # the caller's thread reads it
        if re.search(rf"\b({'|'.join(FACADES)}|ServiceBusSession)\b", kind):
            raise RuleMissingError(
                f"{self.source.path}: an argument has the type {kind}, whose objects have twins. Add the type to TWINS "
                "of tools/make_sync, with the error for objects of other types."
            )
        return argument.arg


def _decorated(node: _Function, name: str) -> bool:
    return any(ast.unparse(each) == name for each in node.decorator_list)


class ModuleWriter:
    """Writes a module of the synchronous API."""

    def __init__(self, source: Source, homes: dict[str, str]) -> None:
        self.source = source
        self.homes = homes

    def text(self) -> str:
        """Return the text of the module, before it is formatted."""
        source, copied = self.source, COPIED.get(self.source.name, ())
        classes = [each for each in source.public_classes if not copied or each.name in copied]
        body = "\n\n".join(
            source.text_of(each) + "\n" if copied else FacadeWriter(source, each).text() for each in classes
        )
        if source.name in LAST_IN_MODULE:
            body += "\n\n" + block(LAST_IN_MODULE[source.name], 0)
        constants, imports = self._imports(body)
        exported = ", ".join(f'"{name}"' for name in sorted(exports(source)))
        return (
            f'"""{source.summary}"""\n\n'
            f"# Made by tools/make_sync from sbredis/aio/{source.name}.py.\n"
            "# Change one of these two, and run `make sync`; a change in this file is lost.\n\n"
            f"from __future__ import annotations\n\n{imports}\n\n__all__ = [{exported}]\n\n{constants}\n\n{body}"
        )

    def _imports(self, body: str) -> tuple[str, str]:
        """Return the private constants that a text needs, and the imports of all other names in it."""
        constants: list[str] = []
        lines: set[str] = set()
        left, known = sorted(_free_names(body), reverse=True), set[str]()
        while left:
            name = left.pop()
            if name in known:
                continue
            known.add(name)
            found = self.source.defined(name)
            if name in MODULES:
                lines.add(f"import {name}")
            elif name == "aio":
                below = self.source.name.startswith("management/")
                lines.add("from sbredis.aio import management as aio" if below else "from sbredis import aio")
            elif name in self.homes:
                lines.add(f"from {self.homes[name]} import {name}")
            elif name in self.source.imports:
                lines.add(f"from {self.source.imports[name]} import {name}")
            elif isinstance(found, ast.Assign) and name.startswith("_"):
                constants.append(self.source.text_of(found))
                left += _free_names(constants[-1])
            elif found is not None:
                lines.add(f"from {self.source.dotted} import {name}")
            else:
                raise RuleMissingError(
                    f"{self.source.path}: add the module of the name {name} to HOMES of tools/make_sync."
                )
        return "\n".join(constants), "\n".join(sorted(lines))


def _free_names(text: str) -> set[str]:
    """Return the names that a text uses and does not define."""
    used: set[str] = set()
    own: set[str] = set(dir(builtins))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else own).add(node.id)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.ClassDef | _Function):
            own.add(node.name)
    own -= {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id in MODULES}
    return used - own


def exports(source: Source) -> set[str]:
    """Return the names that the module made from a module exports."""
    copied = COPIED.get(source.name)
    names = set(copied) if copied else {each.name for each in source.public_classes}
    further = ast.parse(textwrap.dedent(LAST_IN_MODULE.get(source.name, "")))
    return names | {node.name for node in further.body if isinstance(node, ast.FunctionDef)}


def formatted(texts: dict[Path, str]) -> dict[Path, str]:
    """Return texts of Python files with sorted imports, without unused ones, and with formatted lines."""
    with TemporaryDirectory() as folder:
        copies = {path: Path(folder) / path.relative_to(ROOT) for path in texts}
        for path, copy in copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(texts[path], "utf-8")
        for command in (["check", "--fix", "--select", "I,F401,F811"], ["format"]):
            done = subprocess.run(
                [sys.executable, "-m", "ruff", *command, "--quiet", "--no-cache", "--config", "pyproject.toml", folder],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"ruff cannot read what tools/make_sync makes: {done.stdout}{done.stderr}")
        return {path: copy.read_text("utf-8") for path, copy in copies.items()}


def made_modules() -> dict[Path, str]:
    """Return the texts of all façade modules, before they are formatted.

    Raise :class:`RuleMissingError` for a module, a class or a member without a rule.
    """
    found = {str(path.relative_to(AIO).with_suffix("")) for path in AIO.rglob("*.py")}
    ruled = {*MADE, *BY_HAND, *WITHOUT}
    if found != ruled:
        raise RuleMissingError(
            f"sbredis/aio and the tables of tools/make_sync name different modules: {sorted(found ^ ruled)}. Add a "
            "module to MADE, BY_HAND or WITHOUT, or remove it there."
        )
    sources = [Source(name) for name in MADE]
    homes = dict(HOMES)
    for source in sources:
        homes |= dict.fromkeys(exports(source), f"sbredis.sync.{source.name.replace('/', '.')}")
    texts: dict[Path, str] = {}
    for source in sources:
        path = SYNC / f"{source.name}.py"
        mine = {name: home for name, home in homes.items() if home != f"sbredis.sync.{source.name.replace('/', '.')}"}
        texts[path] = ModuleWriter(source, mine).text()
    return texts
