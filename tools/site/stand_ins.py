"""Import the code for Spark where PySpark and its libraries are not installed, to read signatures and docstrings."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["stand_ins"]

LIBRARIES = frozenset({"pandas", "py4j", "pyarrow", "pyspark"})
"""The libraries of requirements/spark.txt that code may import when it is loaded."""


class _Anything:
    """Stands for a class or a function of a library: it can be inherited from, and called while modules are loaded."""

    def __init__(self, *_: object, **__: object) -> None:
        pass


class _StandIn(ModuleType):
    """A module in place of one that is not installed."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Anything,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    """Finds stand-ins. It comes last in ``sys.meta_path``, so a library that is installed is imported itself."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        known = fullname.partition(".")[0] in LIBRARIES
        return ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def stand_ins() -> Generator[None]:
    """Let the block import modules that import these libraries, whether they are installed or not.

    After the block, importing a library that is not installed fails again.
    """
    finder = _Finder()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
            del sys.modules[name]
