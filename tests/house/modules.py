"""The modules of this repository as syntax trees, for the tests of the rules for the code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from tools.repository import ROOT

PLACES = {"sbredis": ROOT / "sbredis", "sbredis.workers": ROOT / "workers"}


@dataclass(frozen=True)
class Module:
    """A module, under the name by which it is imported."""

    name: str
    path: Path

    @property
    def folder(self) -> str:
        """The folder of sbredis that the module belongs to:

        ``transport`` for ``sbredis.transport._slots``; ``""`` at the top.
        """
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 and (len(parts) > 2 or self.is_package) else ""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.path)

    @cache  # noqa: B019 -- several tests ask; the names are few
    def imports(self) -> list[str]:
        """Return the full name of each import anywhere in the module, including imports in functions and imports only
        for types.

        ``from a.b import c`` gives ``a.b.c``, because ``c`` may be a module.
        """
        return list(self._imports_in(ast.walk(self.tree)))

    def loads(self) -> Iterator[str]:
        """Yield the full name of each import that runs when the module is loaded."""
        yield from self._imports_in(_loaded(self.tree.body))

    def _imports_in(self, nodes: Iterable[ast.AST]) -> Iterator[str]:
        package = self.name if self.is_package else self.name.rpartition(".")[0]
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
                    base = f"{above}.{base}".rstrip(".")
                yield from (f"{base}.{alias.name}" for alias in node.names)
            else:
                match node:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name(id="importlib"), attr="import_module")
                        | ast.Name(id="__import__"),
                        args=[ast.Constant(value=name), *_],
                    ):
                        yield str(name)


def _loaded(statements: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the statements that run when a module is loaded, also those in branches and classes."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from _loaded(statement.orelse)
        elif isinstance(statement, (ast.If, ast.Try, ast.With, ast.ClassDef)):
            inner = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
            handlers = [node for each in getattr(statement, "handlers", []) for node in each.body]
            yield from _loaded([*inner, *handlers])


@lru_cache(maxsize=4)  # all trees together would take 25 MB in each test process
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def modules() -> list[Module]:
    """Return all modules of sbredis, including those of the worker framework."""
    found: list[Module] = []
    for package, place in PLACES.items():
        for path in sorted(place.rglob("*.py")):
            parts = path.relative_to(place).with_suffix("").parts
            name = ".".join((package, *(part for part in parts if part != "__init__")))
            found.append(Module(name, path))
    return found


def importable_modules() -> list[Module]:
    """Return the modules that can be imported here: without PySpark, those of ``sbredis.spark`` are left out."""
    there = find_spec("pyspark") is not None
    return [module for module in modules() if there or not module.name.startswith("sbredis.spark.")]
