"""Tests that the error for a wrong call shows the public name of the function, and no internal name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

import pytest

import sbredis
from sbredis import aio
from tests.house.modules import importable_modules
from tests.offenders import for_each

PUBLIC = ["sbredis", *(f"sbredis.{name}" for name in ("aio", "aio.management", "amqp", "management"))]
PUBLIC += ["sbredis.exceptions", "sbredis.servers", "sbredis.testing"]
WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {"no_such_option": 1}),
    ((None,), {"no_such_option": 1}),
    ((), {}),
    ((None,) * 60, {}),
]
OURS = {
    node.__name__: node
    for module in importable_modules()
    for node in vars(import_module(module.name)).values()
    if inspect.isclass(node) and node.__module__.startswith("sbredis")
}
"""Every class of sbredis, by name."""


def classes() -> Iterator[Any]:
    for module in PUBLIC:
        for name in import_module(module).__all__:
            value = getattr(import_module(module), name)
            if inspect.isclass(value) or inspect.isroutine(value):
                yield pytest.param(value, id=f"{module}.{name}")


def functions(thing: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield a public object and each of its public methods, with their names."""
    yield thing.__name__, thing
    for name in dir(thing) if inspect.isclass(thing) else ():
        if not name.startswith("_") and inspect.isroutine(inspect.getattr_static(thing, name)):
            yield name, getattr(thing, name)


def complaints(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the error texts of calls with wrong arguments."""
    for positional, named in WRONG:
        if inspect.isclass(function) and not positional and not named:
            continue  # a call without arguments may be valid
        try:
            done = function(*positional, **named)
        except TypeError as error:
            yield str(error)
        except Exception:  # noqa: BLE001, S112  # the call was accepted and then failed
            continue
        else:
            if inspect.iscoroutine(done):
                done.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the warnings about unknown options are tested elsewhere
@for_each("thing", classes())
def test_the_error_for_a_wrong_call_shows_only_public_names(thing: Any) -> None:
    said = [text for _, function in functions(thing) for text in complaints(function)]
    public = {thing, *(each for each in getattr(thing, "__mro__", ()) if is_public(each))}
    internal = [name for name, cls in internal_classes().items() if cls not in public]
    pattern = re.compile(rf"\b(?:{'|'.join(internal)})\.\w+\(|\b_(?!_)\w+|sbredis\.\w*\._")
    assert [text for text in said if pattern.search(text)] == []


@pytest.mark.slow
def test_wrong_calls_cause_errors() -> None:
    said = [text for _, function in functions(aio.ServiceBusReceiver) for text in complaints(function)]
    assert "ServiceBusReceiver.complete_message() got an unexpected keyword argument 'no_such_option'" in said


def is_public(cls: type) -> bool:
    return any(getattr(import_module(module), cls.__name__, None) is cls for module in PUBLIC)


@cache
def internal_classes() -> dict[str, type]:
    return {name: cls for name, cls in OURS.items() if not is_public(cls)}


def test_the_error_for_a_wrong_renewer_shows_its_public_name() -> None:
    client, other = aio.ServiceBusClient("memory://a"), sbredis.ServiceBusClient("memory://a")
    ours: Any = aio.AutoLockRenewer()
    theirs: Any = sbredis.AutoLockRenewer()
    said = "auto_lock_renewer must be a sbredis.aio.AutoLockRenewer, not a sbredis.AutoLockRenewer"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        client.get_queue_receiver("q", auto_lock_renewer=theirs)
    said = "auto_lock_renewer must be a sbredis.AutoLockRenewer, not a sbredis.aio.AutoLockRenewer"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        other.get_queue_receiver("q", auto_lock_renewer=ours)
    with pytest.raises(TypeError, match=r"not a int$"):
        client.get_queue_receiver("q", auto_lock_renewer=5)  # type: ignore[call-overload]
    other.close()
    theirs.close()
