"""The check of what a handler has returned."""

from __future__ import annotations

import inspect
from typing import Any

from sbredis.workers.declaring._outcomes import Outcome

__all__ = ["checked_result"]


def checked_result(result: Any) -> Any:
    """Return the result of a handler. Raise if it is work that nobody would do, or the class of an outcome."""
    if result is None:
        return None
    kind: object = result
    if isinstance(kind, type) and issubclass(kind, Outcome):
        raise TypeError(f"The handler returned the class {kind.__name__}: return an object of it.")
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # else Python would warn that it was never awaited
        raise TypeError(
            f"The handler returned a {type(result).__name__}, and nothing would run it: use it in the handler."
        )
    return result
