"""Tests that the errors form one tree, and that the docstring of their module shows this tree."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module

from sbredis import exceptions, registry
from sbredis.exceptions import ServiceBusError
from sbredis.servers import ServerNotFoundError
from tests.house.modules import modules
from tools.repository import ROOT

LINE = re.compile(r"^ *(?P<depth>(?:│   |    )*)[├└]── (?P<name>\w+) +(?P<also>\(also a ValueError\))?", re.MULTILINE)


def test_the_tree_of_errors_in_the_docstring_matches_the_classes() -> None:
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


def test_every_public_error_is_in_the_tree() -> None:
    assert registry.NamespaceSlotsError is exceptions.NamespaceSlotsError
    assert issubclass(exceptions.NamespaceSlotsError, ValueError)


CODES: dict[type[ServiceBusError], str] = {
    exceptions.ServiceBusError: "GeneralError",
    exceptions.ServiceBusConnectionError: "ConnectionFailed",
    exceptions.ServerUnsuitableError: "ServerUnsuitable",
    exceptions.ServiceBusCommunicationError: "ServiceCommunicationProblem",
    exceptions.ServiceBusAuthenticationError: "AuthenticationFailed",
    exceptions.ServiceBusAuthorizationError: "Unauthorized",
    exceptions.ServiceBusServerBusyError: "ServiceBusy",
    exceptions.OperationTimeoutError: "ServiceTimeout",
    exceptions.ScriptRefusedError: "ScriptRefused",
    exceptions.MessagingEntityNotFoundError: "MessagingEntityNotFound",
    exceptions.NamespaceMissingError: "NamespaceMissing",
    exceptions.MessagingEntityAlreadyExistsError: "MessagingEntityAlreadyExists",
    exceptions.MessagingEntityDisabledError: "MessagingEntityDisabled",
    exceptions.ServiceBusQuotaExceededError: "QuotaExceeded",
    exceptions.MessageSizeExceededError: "MessageSizeExceeded",
    exceptions.MessageLockLostError: "MessageLockLost",
    exceptions.KeyAlreadyUsedError: "KeyAlreadyUsed",
    exceptions.WatermarkChangedError: "WatermarkChanged",
    exceptions.MessageNotFoundError: "MessageNotFound",
    exceptions.MessageAlreadySettled: "MessageAlreadySettled",
    exceptions.MessageBodyError: "MessageBody",
    exceptions.WorkerSetupError: "WorkerSetup",
    exceptions.SparkSetupError: "SparkSetup",
    exceptions.SessionCannotBeLockedError: "SessionCannotBeLocked",
    exceptions.SessionLockLostError: "SessionLockLost",
    exceptions.RedriveInProgressError: "RedriveInProgress",
    exceptions.EntityReservedError: "EntityReserved",
    exceptions.ReservationTimeoutError: "ReservationTimeout",
    exceptions.ReservationLostError: "ReservationLost",
    exceptions.MessagesLostError: "MessagesLost",
    exceptions.BatchConflictError: "BatchConflict",
    exceptions.BatchInterruptedError: "BatchInterrupted",
    exceptions.RowRefusedError: "RowRefused",
    exceptions.RuleSyntaxError: "RuleSyntax",
    exceptions.AutoLockRenewFailed: "AutoLockRenewFailed",
    exceptions.AutoLockRenewTimeout: "AutoLockRenewTimeout",
    exceptions.NamespaceSlotsError: "NamespaceSlots",
    exceptions.DataLayoutError: "DataLayout",
    exceptions.InvalidConnectionStringError: "InvalidConnectionString",
    registry.EntityChangedError: "EntityChanged",
    ServerNotFoundError: "ServerNotFound",
}
"""The codes are repeated here, because programs compare with them. Changing or removing a code breaks those programs.
"""


def below(cls: type[ServiceBusError]) -> Iterator[type[ServiceBusError]]:
    for child in cls.__subclasses__():
        yield child
        yield from below(child)


def test_each_class_of_the_tree_has_a_unique_code_that_never_changes() -> None:
    public = {getattr(exceptions, name) for name in exceptions.__all__}
    assert {cls for cls in public if issubclass(cls, ServiceBusError)} <= set(CODES)
    assert {cls: cls.__dict__.get("code") for cls in CODES} == CODES
    assert len(set(CODES.values())) == len(CODES)


def test_a_class_without_a_code_inherits_one() -> None:
    for module in modules():
        if not module.name.startswith("sbredis.spark."):  # needs PySpark, and has no errors of its own
            import_module(module.name)
    own = {cls for cls in below(ServiceBusError) if cls.__module__.startswith("sbredis.") and "code" in vars(cls)}
    assert own == set(CODES) - {ServiceBusError}


def test_an_error_shows_its_code() -> None:
    assert "(MessageLockLost; " in str(exceptions.MessageLockLostError("gone"))


def test_the_documents_name_each_class_with_its_code() -> None:
    text = (ROOT / "docs" / "errors.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text, re.MULTILINE))
    assert listed == {cls.__name__: code for cls, code in CODES.items()}
