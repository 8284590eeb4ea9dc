"""The synchronous API has every name of the asynchronous one, with the same signatures."""

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
    aio.ServiceBusClient: sync.ServiceBusClient,
    aio.ServiceBusSender: sync.ServiceBusSender,
    aio.ServiceBusReceiver: sync.ServiceBusReceiver,
    aio.ServiceBusSessionReceiver: sync.ServiceBusSessionReceiver,
    aio.ServiceBusSession: sync.ServiceBusSession,
    aio.ServiceBusSettler: sync.ServiceBusSettler,
    aio.ServiceBusTransaction: sync.ServiceBusTransaction,
    aio.ServiceBusRole: sync.ServiceBusRole,
    aio.AutoLockRenewer: sync.AutoLockRenewer,
    aio.SendStream: sync.SendStream,
    aio_management.AsyncItemPaged: sync_management.ItemPaged,
    aio_management.AsyncPages: sync_management.Pages,
    aio_management.ServiceBusAdministrationClient: sync_management.ServiceBusAdministrationClient,
}
SPECIAL = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__await__": "count",
    "aclose": "close",
}
MADE_BY_USERS = {"ServiceBusClient", "ServiceBusAdministrationClient"}
RETURNS = {
    "AsyncItemPaged": "ItemPaged",
    "AsyncPages": "Pages",
    "AsyncIterator": "Iterator",
    "AsyncGenerator": "Generator",
}
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
            if (inspect.isroutine(value) or isinstance(value, (property, classmethod))) and (
                not name.startswith("_") or name in SPECIAL or (name == "__init__" and ours.__name__ in MADE_BY_USERS)
            ):
                name = SPECIAL.get(name, name)
                if f"{ours.__name__}.{name}" in FOR_OTHERS:
                    continue
                found.append(pytest.param(value, ours, name, id=f"{ours.__name__}.{name}"))
    return found


def plain(text: Any) -> str:
    """Return an annotation without the parts in which the two APIs must differ."""
    text = str(text).replace("AsyncIterable[Any] | Iterable", "Iterable")
    return re.sub(r"\bCredentialProvider \| tuple\[str \| None, str\]", "Credential", text)


def parameters(routine: Any) -> list[tuple[str, Any, Any, str]]:
    found = inspect.signature(getattr(routine, "__func__", routine)).parameters.values()
    return [(each.name, each.kind, each.default, plain(each.annotation)) for each in found]


def returned(routine: Any) -> str:
    text = plain(inspect.signature(getattr(routine, "__func__", routine)).return_annotation)
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
    assert isinstance(found, classmethod) == isinstance(theirs, classmethod)
    if f"{ours.__name__}.{name}" not in OTHERWISE:
        assert parameters(found) == parameters(theirs)
        assert returned(found) == returned(theirs)


PROMISES_MORE = {
    *("AutoLockRenewer", "AutoLockRenewer.close", "ServiceBusAdministrationClient.close", "ServiceBusClient.close"),
    *("ServiceBusSender.send_stream", "SendStream", "Pages", "Pages.next_page"),
}
"""Classes and methods whose docstrings differ, because their use or their promise differs."""
AND_MORE = {
    *("ServiceBusAdministrationClient", "ServiceBusClient", "ServiceBusReceiver", "ServiceBusSender"),
    *("ServiceBusSession", "ServiceBusSettler"),
}
"""Classes whose docstrings have an additional paragraph."""


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
        if name in AND_MORE:
            assert said(other).startswith(f"{said(one)}\n\n")
        elif other is not None and "._" not in name and said(one) and said(one) != said(other):
            differ.add(name)
        assert "async " not in (getattr(other, "__doc__", None) or "")
    assert differ == {name for name in PROMISES_MORE if name.partition(".")[0] == ours.__name__}


@for_each("ours", PAIRS.values(), ids=lambda ours: ours.__name__)
def test_no_public_method_is_asynchronous(ours: type) -> None:
    asynchronous = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    assert [
        name for name, value in vars(ours).items() if name[0] != "_" and any(is_(value) for is_ in asynchronous)
    ] == []


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
        _ = sbredis.ServiceBusSessions
