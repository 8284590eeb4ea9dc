"""The classes of the synchronous API that are written by hand have every name of their asynchronous counterparts, with
the same signatures and docstrings. For all other classes tools/make_sync guarantees that.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import sbredis
from sbredis import aio, sync
from sbredis.aio import management as aio_management
from sbredis.sync import management as sync_management
from tests.offenders import for_each

PAIRS: dict[type, type] = {
    aio.AutoLockRenewer: sync.AutoLockRenewer,
    aio.SendStream: sync.SendStream,
    aio_management.AsyncItemPaged: sync_management.ItemPaged,
    aio_management.AsyncPages: sync_management.Pages,
}
SPECIAL = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__await__": "count",
    "aclose": "close",
}
RETURNS = {"AsyncPages": "Pages", "AsyncIterator": "Iterator", "AsyncGenerator": "Generator"}
"""A mapping from the classes that asynchronous methods return to the synchronous ones."""
OTHERWISE = {
    "AutoLockRenewer.close",  # a method of Azure's; its caller can ask it not to wait
    "SendStream.count",
}
FOR_OTHERS = {
    "SendStream.halt",  # only the sender calls this
}


def members(cls: type) -> dict[str, Any]:
    """Return the attributes that a class and its parents in sbredis define."""
    made_of = [parent for parent in reversed(cls.__mro__) if parent.__module__.startswith("sbredis")]
    return {name: value for parent in made_of for name, value in vars(parent).items()}


def methods() -> list[Any]:
    found: list[Any] = []
    for theirs, ours in PAIRS.items():
        for name, value in members(theirs).items():
            if (inspect.isroutine(value) or isinstance(value, property)) and (
                not name.startswith("_") or name in SPECIAL
            ):
                name = SPECIAL.get(name, name)
                if f"{ours.__name__}.{name}" in FOR_OTHERS:
                    continue
                found.append(pytest.param(value, ours, name, id=f"{ours.__name__}.{name}"))
    return found


def parameters(routine: Any) -> list[tuple[str, Any, Any, str]]:
    found = inspect.signature(routine).parameters.values()
    return [(each.name, each.kind, each.default, str(each.annotation)) for each in found]


def returned(routine: Any) -> str:
    text = str(inspect.signature(routine).return_annotation)
    for theirs, ours in RETURNS.items():
        text = text.replace(theirs, ours)
    return text


@for_each(("theirs", "ours", "name"), methods())
def test_every_method_has_a_synchronous_counterpart_with_the_same_signature(theirs: Any, ours: type, name: str) -> None:
    found = inspect.getattr_static(ours, name, None)
    if isinstance(theirs, property):
        assert isinstance(found, property)
        return
    assert found is not None
    assert not inspect.iscoroutinefunction(found)
    if f"{ours.__name__}.{name}" not in OTHERWISE:
        assert parameters(found) == parameters(theirs)
        assert returned(found) == returned(theirs)


PROMISES_MORE = {"AutoLockRenewer", "AutoLockRenewer.close", "SendStream", "Pages", "Pages.next_page"}
"""Classes and methods whose docstrings differ, because their use or their promise differs."""


def said(of: Any) -> str:
    """Return the docstring of a class, method or property. A plain value has none of its own: on Python 3.13 it shows
    that of its type.
    """
    if not callable(of) and not isinstance(of, property | classmethod | staticmethod):
        return ""
    return re.sub(r"\basync (for|with)\b", r"\1", inspect.cleandoc(getattr(of, "__doc__", None) or ""))


@for_each(("theirs", "ours"), PAIRS.items(), ids=lambda cls: cls.__name__)
def test_every_docstring_equals_the_asynchronous_one_unless_it_is_listed_as_different(theirs: type, ours: type) -> None:
    both: dict[str, tuple[Any, Any]] = {ours.__name__: (theirs, ours)}
    both |= {f"{ours.__name__}.{name}": (value, vars(ours).get(name)) for name, value in members(theirs).items()}
    differ: set[str] = set()
    for name, (one, other) in both.items():
        if other is not None and "._" not in name and said(one) and said(one) != said(other):
            differ.add(name)
    assert differ == {name for name in PROMISES_MORE if name.partition(".")[0] == ours.__name__}


@for_each("name", [name for name in sync.__all__ if isinstance(getattr(sync, name), type)])
def test_no_public_method_is_asynchronous_and_no_docstring_speaks_of_async(name: str) -> None:
    asynchronous = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    found = {"": getattr(sync, name), **vars(getattr(sync, name))}
    assert [key for key, value in found.items() if key[:1] != "_" and any(is_(value) for is_ in asynchronous)] == []
    assert [key for key, value in found.items() if "``async " in (getattr(value, "__doc__", None) or "")] == []


def test_the_renewer_has_azures_signature() -> None:
    assert list(inspect.signature(sync.AutoLockRenewer).parameters) == [
        "max_lock_renewal_duration",
        "on_lock_renew_failure",
        "executor",
        "max_workers",
    ]


def test_both_packages_export_the_same_names() -> None:
    """The synchronous client's event loop has a thread of its own, so its AutoLockRenewer cannot be blocked."""
    assert sorted([*sync.__all__, "BackgroundLockRenewer"]) == sorted(aio.__all__)
    assert sorted(sync_management.__all__) == sorted(name.removeprefix("Async") for name in aio_management.__all__)


def test_the_top_package_exports_the_names_of_azures_package() -> None:
    azure = {
        *(
            "AutoLockRenewer",
            "NEXT_AVAILABLE_SESSION",
            "ServiceBusClient",
            "ServiceBusMessage",
            "ServiceBusMessageBatch",
        ),
        *("ServiceBusMessageState", "ServiceBusReceiveMode", "ServiceBusReceivedMessage", "ServiceBusReceiver"),
        *("ServiceBusSender", "ServiceBusSession", "ServiceBusSessionFilter", "ServiceBusSubQueue", "TransportType"),
    }
    assert azure <= set(sbredis.__all__) <= set(dir(sbredis))
    everything: dict[str, Any] = {}
    exec("from sbredis import *", everything)  # noqa: S102  # the code under test
    assert set(sbredis.__all__) <= set(everything)
    assert sbredis.ServiceBusClient is sync.ServiceBusClient


def test_the_top_package_exports_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ServiceBusSessions'"):
        _ = sbredis.ServiceBusSessions  # type: ignore[attr-defined]
