"""The errors of sbredis: one tree, under Azure Service Bus's names.

::

    ServiceBusError
    ├── ServiceBusConnectionError           no connection could be made, or it is of no use
    │   └── ServerUnsuitableError           the server answers, but must be set up differently first
    ├── ServiceBusCommunicationError        the connection was lost while a call was under way
    ├── ServiceBusAuthenticationError       wrong or missing credentials
    ├── ServiceBusAuthorizationError        the credentials do not permit this
    ├── ServiceBusServerBusyError           the server or this client cannot take more at the moment
    ├── OperationTimeoutError               the call's deadline passed
    ├── ScriptRefusedError                  a script or command was answered with an error of its own
    ├── MessagingEntityNotFoundError        there is no such queue, topic or subscription
    │   └── NamespaceMissingError           the namespace itself is not there any more
    ├── MessagingEntityAlreadyExistsError   there is one of that name already
    ├── MessagingEntityDisabledError        the entity's status does not permit this
    ├── ServiceBusQuotaExceededError        the entity is full
    ├── MessageSizeExceededError            (also a ValueError) a message or a batch is too large
    ├── MessageLockLostError                the lock on a message has ended, or is another's
    ├── MessageNotFoundError                no such message is there in that state
    ├── MessageAlreadySettled               (also a ValueError) the message was settled before
    ├── SessionCannotBeLockedError          another receiver has the lock on the session
    ├── SessionLockLostError                the lock on a session has ended, or is another's
    ├── RuleSyntaxError                     (also a ValueError) a filter or an action that the language does not know
    ├── AutoLockRenewFailed                 a lock could not be renewed automatically
    ├── AutoLockRenewTimeout                a lock is renewed no longer: it was for as long as was asked for
    ├── NamespacePartitionsError            (also a ValueError) the namespace has another number of partitions
    ├── DataLayoutError                     the data were written by a release that this one cannot read
    └── InvalidConnectionStringError        (also a ValueError) a connection string that names no server

Every error says what happened, whether a retry can help (:attr:`ServiceBusError.is_transient`), what is known about
the operation's effect (:attr:`ServiceBusError.outcome`), and carries a :attr:`ServiceBusError.tracking_id` that
stands in the log as well. Its class has a :attr:`ServiceBusError.code`, a short name that does not change from release
to release; where Azure's libraries have a name for the reason (``ServiceBusFailureReason`` in .NET), it is that name.
"""

from __future__ import annotations

import enum
import secrets
from typing import Any, ClassVar, Self, TypeVar

__all__ = [
    "AutoLockRenewFailed",
    "AutoLockRenewTimeout",
    "DataLayoutError",
    "InvalidConnectionStringError",
    "MessageAlreadySettled",
    "MessageLockLostError",
    "MessageNotFoundError",
    "MessageSizeExceededError",
    "MessagingEntityAlreadyExistsError",
    "MessagingEntityDisabledError",
    "MessagingEntityNotFoundError",
    "NamespaceMissingError",
    "NamespacePartitionsError",
    "OperationTimeoutError",
    "Outcome",
    "ResourceExistsError",
    "ResourceNotFoundError",
    "RuleSyntaxError",
    "ScriptRefusedError",
    "ServerUnsuitableError",
    "ServiceBusAuthenticationError",
    "ServiceBusAuthorizationError",
    "ServiceBusCommunicationError",
    "ServiceBusConnectionError",
    "ServiceBusError",
    "ServiceBusQuotaExceededError",
    "ServiceBusServerBusyError",
    "SessionCannotBeLockedError",
    "SessionLockLostError",
]


_E = TypeVar("_E", bound="ServiceBusError")


class Outcome(enum.Enum):
    """What is known about the effect of an operation that failed."""

    NEVER_SENT = "never sent"
    """The operation did not run. Doing it again, here or elsewhere, cannot do it twice."""

    REFUSED = "refused"
    """The server answered with an error, and nothing was changed."""

    UNKNOWN = "unknown"
    """The operation was sent and no answer came: it may or may not have run."""


class ServiceBusError(Exception):
    """The root of the tree: anything sbredis reports about an operation or a server."""

    code: ClassVar[str] = "GeneralError"
    """Names the kind of error; it stays the same across releases, and each class of the tree has its own."""
    is_transient: bool = False
    """Whether the same operation may succeed later without anything being changed by hand."""

    outcome: Outcome | None
    """What is known about the operation's effect; ``None`` where no operation was under way."""

    tracking_id: str
    """Names this one failure in the error's text and in the log."""

    entity: str | None = None
    """The queue, topic or subscription that the operation was about, where there was one."""

    def __init__(
        self,
        message: str = "Service Bus has encountered an error.",
        *,
        outcome: Outcome | None = None,
        is_transient: bool | None = None,
        tracking_id: str | None = None,
    ) -> None:
        self.message = message
        self.outcome = outcome
        self.tracking_id = tracking_id or secrets.token_hex(8)
        if is_transient is not None:
            self.is_transient = is_transient
        super().__init__(message)

    def twin(self) -> Self:
        """The same failure for another caller: one exception must not be raised in two tasks."""
        return _made_again(type(self), self.args, self.__dict__)

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies and pickles: whatever the constructor of its class takes."""
        return _made_again, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        notes = [self.code]
        notes += [f"entity '{self.entity}'"] if self.entity and f"'{self.entity}'" not in self.message else []
        notes += [f"outcome: {self.outcome.value}"] if self.outcome else []
        notes.append("a retry may help" if self.is_transient else "a retry will not help")
        notes.append(f"tracking id {self.tracking_id}")
        return f"{self.message} ({'; '.join(notes)})"


def _made_again(kind: type[_E], arguments: tuple[Any, ...], facts: dict[str, Any]) -> _E:
    made = kind.__new__(kind)
    made.args = arguments
    made.__dict__.update(facts)
    return made


class ServiceBusConnectionError(ServiceBusError):
    """No connection to a server could be made."""

    code = "ConnectionFailed"
    is_transient = True


class ServerUnsuitableError(ServiceBusConnectionError):
    """The server answers, but must be set up differently before it can carry messages; the text says how."""

    code = "ServerUnsuitable"
    is_transient = False


class ServiceBusCommunicationError(ServiceBusError):
    """The connection was lost while a call was under way."""

    code = "ServiceCommunicationProblem"
    is_transient = True


class ServiceBusAuthenticationError(ServiceBusError):
    """The server does not accept the credentials."""

    code = "AuthenticationFailed"


class ServiceBusAuthorizationError(ServiceBusError):
    """The credentials are good, but do not permit this operation."""

    code = "Unauthorized"


class ServiceBusServerBusyError(ServiceBusError):
    """The server, or the queue of calls to it in this client, cannot take more at the moment."""

    code = "ServiceBusy"
    is_transient = True


class OperationTimeoutError(ServiceBusError):
    """The operation did not end before its deadline."""

    code = "ServiceTimeout"
    is_transient = True


class ScriptRefusedError(ServiceBusError):
    """The server answered a script or a command with an error that is not about reaching it.

    :attr:`reply_code` is the first word of the reply, :attr:`detail` the rest. The engine turns the codes of its own
    scripts into the named errors of Service Bus.
    """

    code = "ScriptRefused"

    after_unknown: bool
    """Whether the same call had been sent before, with an unknown outcome."""

    def __init__(
        self, reply_code: str, detail: str, *, tracking_id: str | None = None, after_unknown: bool = False
    ) -> None:
        self.reply_code = reply_code
        self.detail = detail
        self.after_unknown = after_unknown
        super().__init__(f"{reply_code} {detail}".strip(), outcome=Outcome.REFUSED, tracking_id=tracking_id)


class InvalidConnectionStringError(ServiceBusError, ValueError):
    """A connection string is malformed; the text names the part that is wrong."""

    code = "InvalidConnectionString"


class MessagingEntityNotFoundError(ServiceBusError):
    """There is no queue, topic or subscription of that name, or no longer."""

    code = "MessagingEntityNotFound"


class NamespaceMissingError(MessagingEntityNotFoundError):
    """The namespace itself is not there any more: its servers have come back empty.

    A sender or receiver that was made with ``create_if_missing`` creates the namespace again, and its entity. Creating
    an entity, or opening a client, creates the namespace as well.
    """

    code = "NamespaceMissing"


class MessagingEntityAlreadyExistsError(ServiceBusError):
    """There is an entity of that name already; names are compared without case."""

    code = "MessagingEntityAlreadyExists"


class MessagingEntityDisabledError(ServiceBusError):
    """The status of the entity does not permit this. It can be set to active again."""

    code = "MessagingEntityDisabled"
    is_transient = True


class ServiceBusQuotaExceededError(ServiceBusError):
    """The entity holds as many bytes as it may, its dead-letter queue included."""

    code = "QuotaExceeded"


class MessageSizeExceededError(ServiceBusError, ValueError):
    """A message, or a batch of them, is larger than the entity or one call takes."""

    code = "MessageSizeExceeded"


class MessageLockLostError(ServiceBusError):
    """The lock on a message has ended, or never was this one: the message may be with another receiver by now."""

    code = "MessageLockLost"

    sequence_numbers: tuple[int, ...] = ()
    """Which messages of several it is about."""


class MessageNotFoundError(ServiceBusError):
    """No message of that number is there in the state in which the operation could take it."""

    code = "MessageNotFound"


class NamespacePartitionsError(ServiceBusError, ValueError):
    """A namespace has another number of partitions than its caller says. It is fixed when the namespace is made."""

    code = "NamespacePartitions"


class DataLayoutError(ServiceBusError):
    """The data were written by a release of sbredis that this one cannot read, or no longer."""

    code = "DataLayout"


class MessageAlreadySettled(ServiceBusError, ValueError):  # noqa: N818  # Azure's name
    """The message was settled before, or is being settled."""

    code = "MessageAlreadySettled"

    def __init__(
        self,
        message: str = "The message was settled already, or is being settled; that cannot be done twice.",
        *,
        outcome: Outcome | None = Outcome.NEVER_SENT,
        is_transient: bool | None = None,
        tracking_id: str | None = None,
    ) -> None:
        super().__init__(message, outcome=outcome, is_transient=is_transient, tracking_id=tracking_id)


class SessionCannotBeLockedError(ServiceBusError):
    """Another receiver has the lock on the session: it can be accepted when that is closed, or lets its lock end."""

    code = "SessionCannotBeLocked"
    is_transient = True


class SessionLockLostError(ServiceBusError):
    """The lock on the session has ended: its messages may be with another receiver by now. Accept the session again."""

    code = "SessionLockLost"

    sequence_numbers: tuple[int, ...] = ()
    """Which messages of several it is about."""


class RuleSyntaxError(ServiceBusError, ValueError):
    """A filter or an action is not written as the language of rules wants it."""

    code = "RuleSyntax"

    def __init__(
        self,
        message: str,
        *,
        line: int = 1,
        column: int = 1,
        expected: tuple[str, ...] = (),
        tracking_id: str | None = None,
    ) -> None:
        self.line = line
        """Where it is wrong, from 1 on."""
        self.column = column
        """Where in the line, in characters from 1 on."""
        self.expected = expected
        """What could stand there instead, each in a few words."""
        super().__init__(message, outcome=Outcome.NEVER_SENT, tracking_id=tracking_id)


class AutoLockRenewFailed(ServiceBusError):  # noqa: N818  # Azure's name
    """A lock could not be renewed automatically; what was in the way is its ``__cause__``."""

    code = "AutoLockRenewFailed"


class AutoLockRenewTimeout(ServiceBusError):  # noqa: N818  # Azure's name
    """A lock is not renewed automatically any longer: it was for as long as was asked for."""

    code = "AutoLockRenewTimeout"


ResourceNotFoundError = MessagingEntityNotFoundError
"""The name under which Azure's administration client raises it."""

ResourceExistsError = MessagingEntityAlreadyExistsError
"""The name under which Azure's administration client raises it."""
