"""Find the worker that a command names: ``module:worker``."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from pathlib import Path
from typing import Any

from sbredis.exceptions import ServiceBusError, WorkerSetupError
from sbredis.workers._worker import Worker

__all__ = ["load_worker"]


def load_worker(target: str) -> Worker:
    """Import a module and return the worker in it. The current folder comes first in the path.

    Raises :class:`~sbredis.exceptions.WorkerSetupError` with the reason and the place, without a traceback.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise WorkerSetupError(f"The worker must be named as MODULE:NAME, such as orders.app:worker, not {target!r}.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise WorkerSetupError(f"There is no module {error.name!r} in {here} or among the packages.") from None
        raise _failed(f"The module {module_name!r} cannot be imported", error) from error
    except Exception as error:
        raise _failed(f"The module {module_name!r} cannot be imported", error) from error
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except Exception as error:
            if not isinstance(error, AttributeError) or inspect.getattr_static(found, name, None) is not None:
                raise _failed(f"{target!r} cannot be read", error) from error
            workers = [each for each in dir(found) if isinstance(inspect.getattr_static(found, each, None), Worker)]
            listed = f" It has {', '.join(map(repr, workers))}." if workers else ""
            raise WorkerSetupError(f"The module {module_name!r} has no {name!r}.{listed}") from error
    if not isinstance(found, Worker):
        raise WorkerSetupError(f"{target} is not a Worker, but of the type {type(found).__name__}.")
    return found


def _failed(failure: str, error: Exception) -> WorkerSetupError:
    """Return the error for code of the application that has failed, with the last line of it that was reached."""
    ours = str(Path(__file__).parents[1])  # sbredis
    libraries = tuple({sys.prefix, sys.base_prefix, ours, "<"})
    frames = [each for each in traceback.extract_tb(error.__traceback__)[1:] if not each.filename.startswith(libraries)]
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        what, place = f"{type(error).__name__}: {error.msg}", f" at {error.filename}:{error.lineno}"
    if isinstance(error, ServiceBusError):
        what = error.message.removesuffix(".")
    return WorkerSetupError(f"{failure}: {what}{place}.")
