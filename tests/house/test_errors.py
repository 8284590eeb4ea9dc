"""The errors are one tree, and it is drawn in the module that has them."""

from __future__ import annotations

import inspect
import re

from sbredis import exceptions, registry

LINE = re.compile(r"^ *(?P<depth>(?:│   |    )*)[├└]── (?P<name>\w+) +(?P<also>\(also a ValueError\))?", re.MULTILINE)


def test_the_tree_that_is_drawn_is_the_one_that_grows() -> None:
    drawn: dict[str, tuple[str, bool]] = {}
    above = ["ServiceBusError"]
    for line in LINE.finditer(inspect.cleandoc(exceptions.__doc__ or "")):
        depth = len(line["depth"]) // 4 + 1
        del above[depth:]
        drawn[line["name"]] = (above[-1], line["also"] is not None)
        above.append(line["name"])
    grown = {
        cls.__name__: (cls.__bases__[0].__name__, issubclass(cls, ValueError))
        for cls in (getattr(exceptions, name) for name in exceptions.__all__)
        if issubclass(cls, exceptions.ServiceBusError) and cls is not exceptions.ServiceBusError
    }
    assert drawn == grown


def test_what_users_are_told_of_comes_from_the_tree() -> None:
    assert registry.NamespacePartitionsError is exceptions.NamespacePartitionsError
    assert issubclass(exceptions.NamespacePartitionsError, ValueError)
