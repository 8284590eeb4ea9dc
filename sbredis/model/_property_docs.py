"""The documentation of a class's attributes: the strings after their assignments.

Editors and documentation tools read these strings in the source, but Python itself drops them. For ``help()``, this
module reads them from the source when they are needed.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

__all__ = ["property_docs"]


@cache
def property_docs(owner: type) -> Mapping[str, str]:
    """Return the documentation of a class's attributes by name, from its source; empty if there is no source."""
    try:
        source = inspect.getsource(owner)
    except (OSError, TypeError):
        return {}
    (made,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(made, ast.ClassDef)  # the source of a class always parses to a class definition
    return {
        name.id: inspect.cleandoc(text)
        for assignment, after in pairwise(made.body)
        for name, text in _assigned(assignment, after)
    }


def _assigned(assignment: ast.stmt, after: ast.stmt) -> list[tuple[ast.Name, str]]:
    match assignment, after:
        case ast.Assign(targets=[ast.Name() as name]), ast.Expr(value=ast.Constant(value=str(text))):
            return [(name, text)]
        case _:
            return []
