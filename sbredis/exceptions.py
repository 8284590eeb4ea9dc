"""The errors of sbredis: one tree, under Azure Service Bus's names.

::

    ServiceBusError
    ├── ServiceBusConnectionError           no connection could be made, or the connection is unusable
    │   └── ServerUnsuitableError           the server answers, but must be set up differently first
    ├── ServiceBusCommunicationError        the connection was lost while a call was under way
    ├── ServiceBusAuthenticationError       wrong or missing credentials
    ├── ServiceBusAuthorizationError        the credentials do not permit this
    ├── ServiceBusServerBusyError           the server or this client cannot take more at the moment
    ├── OperationTimeoutError               the call did not end before its deadline
    ├── ScriptRefusedError                  the server answered a script or a command with an error
    ├── MessagingEntityNotFoundError        there is no such queue, topic or subscription
    │   └── NamespaceMissingError           the namespace itself no longer exists
    ├── MessagingEntityAlreadyExistsError   an entity of that name exists already
    ├── MessagingEntityDisabledError        the entity's status does not permit this
    ├── ServiceBusQuotaExceededError        the entity is full
    ├── MessageSizeExceededError            (also a ValueError) a message or a batch is too large
    ├── MessageBodyError                    (also a ValueError) a body does not fit the type it was decoded to
    ├── MessageLockLostError                the lock on a message has ended, or belongs to another receiver
    ├── KeyAlreadyUsedError                 an earlier transaction has used a key of this transaction
    ├── MessageNotFoundError                there is no such message in the required state
    ├── MessageAlreadySettled               (also a ValueError) the message was settled before
    ├── SessionCannotBeLockedError          another receiver has the lock on the session
    ├── SessionLockLostError                the lock on a session has ended, or belongs to another receiver
    ├── RedriveInProgressError              another redrive of the same dead-letter queue is running
    ├── RuleSyntaxError                     (also a ValueError) the text of a filter or an action is not valid
    ├── AutoLockRenewFailed                 a lock could not be renewed automatically
    ├── AutoLockRenewTimeout                a lock has been renewed for the requested time, and is not renewed further
    ├── NamespacePartitionsError            (also a ValueError) the namespace has another number of partitions
    ├── DataLayoutError                     another release wrote the data, and this release cannot read them
    ├── WorkerSetupError                    (also a ValueError) the handlers or options of a worker do not fit together
    └── InvalidConnectionStringError        (also a ValueError) the connection string is malformed

Every error says what happened and whether a retry can help (:attr:`ServiceBusError.is_transient`). It says what is
known about the effect of the operation (:attr:`ServiceBusError.outcome`). Its :attr:`ServiceBusError.tracking_id` is
also written to the log. Its class has a :attr:`ServiceBusError.code`, a short name that stays the same across
releases. If Azure's libraries have a name for the reason (``ServiceBusFailureReason`` in .NET), the code is that name.
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
    "KeyAlreadyUsedError",
    "MessageAlreadySettled",
    "MessageBodyError",
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
    "RedriveInProgressError",
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
    "WorkerSetupError",
]


_E = TypeVar("_E", bound="ServiceBusError")


class Outcome(enum.Enum):
    """What is known about the effect of an operation that failed."""

    NEVER_SENT = "never sent"
    """The operation did not run. If you repeat it, here or elsewhere, it cannot run twice."""

    REFUSED = "refused"
    """The server answered with an error and changed nothing."""

    UNKNOWN = "unknown"
    """The operation was sent, but no answer came. It may or may not have run."""


class ServiceBusError(Exception):
    """The root of the tree: every error that sbredis reports about an operation or a server."""

    code: ClassVar[str] = "GeneralError"
    """The kind of error. It stays the same across releases, and each class of the tree has its own."""
    is_transient: bool = False
    """Whether the same operation may succeed later if you change nothing."""

    outcome: Outcome | None
    """What is known about the operation's effect; ``None`` if no operation was under way."""

    tracking_id: str
    """An identifier of this one failure, in the error's text and in the log."""

    entity: str | None = None
    """The queue, topic or subscription of the operation, if there was one."""

    unreachable_partitions: tuple[int, ...] = ()
    """The partitions that a creation, update or deletion of an entity could not reach. The next call that reaches them
    continues the work.
    """

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
        """Return a copy of this error for another caller: one exception must not be raised in two tasks."""
        return _made_again(type(self), self.args, self.__dict__)

    def __reduce__(self) -> tuple[Any, ...]:
        """Support copying and pickling, whatever arguments the constructor of the class takes."""
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
    """The server answers, but its settings must change before it can carry messages; the text says how."""

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
    """The credentials are valid, but do not permit this operation."""

    code = "Unauthorized"


class ServiceBusServerBusyError(ServiceBusError):
    """The server cannot take more calls at the moment, or this client's queue of calls is full."""

    code = "ServiceBusy"
    is_transient = True


class OperationTimeoutError(ServiceBusError):
    """The operation did not end before its deadline."""

    code = "ServiceTimeout"
    is_transient = True


class ScriptRefusedError(ServiceBusError):
    """The server answered a script or a command with an error that is not about the connection.

    :attr:`reply_code` is the first word of the reply, and :attr:`detail` is the rest. The engine turns the codes of its
    own scripts into the named errors of Service Bus.
    """

    code = "ScriptRefused"

    after_unknown: bool
    """Whether the same call was sent before, with an unknown outcome."""

    def __init__(
        self, reply_code: str, detail: str, *, tracking_id: str | None = None, after_unknown: bool = False
    ) -> None:
        self.reply_code = reply_code
        self.detail = detail
        self.after_unknown = after_unknown
        super().__init__(f"{reply_code} {detail}".strip(), outcome=Outcome.REFUSED, tracking_id=tracking_id)


class InvalidConnectionStringError(ServiceBusError, ValueError):
    """The connection string is malformed; the text names the part that is wrong."""

    code = "InvalidConnectionString"


class MessagingEntityNotFoundError(ServiceBusError):
    """There is no queue, topic or subscription of that name, or it no longer exists."""

    code = "MessagingEntityNotFound"


class NamespaceMissingError(MessagingEntityNotFoundError):
    """The namespace itself no longer exists: its servers came back empty.

    A sender or receiver that was made with ``create_if_missing`` creates the namespace and its entity again. Creating
    an entity or opening a client also creates the namespace.
    """

    code = "NamespaceMissing"


class MessagingEntityAlreadyExistsError(ServiceBusError):
    """An entity of that name exists already. Names are compared without regard to case."""

    code = "MessagingEntityAlreadyExists"


class MessagingEntityDisabledError(ServiceBusError):
    """The status of the entity does not permit this operation. You can set the status to active again."""

    code = "MessagingEntityDisabled"
    is_transient = True


class ServiceBusQuotaExceededError(ServiceBusError):
    """The entity is full: it and its dead-letter queue hold as many bytes as the entity may have."""

    code = "QuotaExceeded"


class MessageSizeExceededError(ServiceBusError, ValueError):
    """A message or a batch is larger than the entity or one call accepts."""

    code = "MessageSizeExceeded"


class MessageBodyError(ServiceBusError, ValueError):
    """The body of a message does not fit the type that it was decoded to.

    The text says where the body does not fit. It contains no value from the body.
    """

    code = "MessageBody"


class MessageLockLostError(ServiceBusError):
    """The lock on the message has ended, or is not valid. Another receiver may have the message by now."""

    code = "MessageLockLost"

    sequence_numbers: tuple[int, ...] = ()
    """The messages that the error is about, if there are several."""


class KeyAlreadyUsedError(ServiceBusError):
    """An earlier transaction has used a key of this transaction, and the window of the key has not ended.

    So the work of this transaction was done before. Complete its input in a transaction without the key.
    """

    code = "KeyAlreadyUsed"

    key: str | bytes | None = None
    """The key, as the transaction gave it."""


class MessageNotFoundError(ServiceBusError):
    """There is no message of that number in a state that the operation accepts."""

    code = "MessageNotFound"


class NamespacePartitionsError(ServiceBusError, ValueError):
    """The namespace has another number of partitions than the caller gave. The number is fixed at creation."""

    code = "NamespacePartitions"


class DataLayoutError(ServiceBusError):
    """Another release of sbredis wrote the data in a layout that this release cannot read, or can no longer read."""

    code = "DataLayout"


class MessageAlreadySettled(ServiceBusError, ValueError):  # noqa: N818  # Azure's name
    """The message was settled before, or is being settled now."""

    code = "MessageAlreadySettled"

    def __init__(
        self,
        message: str = "The message was settled already, or is being settled; it cannot be settled twice.",
        *,
        outcome: Outcome | None = Outcome.NEVER_SENT,
        is_transient: bool | None = None,
        tracking_id: str | None = None,
    ) -> None:
        super().__init__(message, outcome=outcome, is_transient=is_transient, tracking_id=tracking_id)


class SessionCannotBeLockedError(ServiceBusError):
    """Another receiver has locked the session.

    The session becomes free when that receiver closes it or when the lock ends.
    """

    code = "SessionCannotBeLocked"
    is_transient = True


class SessionLockLostError(ServiceBusError):
    """The lock on the session has ended. Another receiver may have the session's messages. Accept the session again."""

    code = "SessionLockLost"

    sequence_numbers: tuple[int, ...] = ()
    """The messages that the error is about, if there are several."""


class RedriveInProgressError(ServiceBusError):
    """Another redrive of the same dead-letter queue is running. Only one runs at a time."""

    code = "RedriveInProgress"
    is_transient = True


class RuleSyntaxError(ServiceBusError, ValueError):
    """The text of a filter or an action does not follow the syntax of the rule language."""

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
        """The line of the mistake, counted from 1."""
        self.column = column
        """The position of the mistake in the line, in characters counted from 1."""
        self.expected = expected
        """The continuations that the parser accepts at this position, each described in a few words."""
        super().__init__(message, outcome=Outcome.NEVER_SENT, tracking_id=tracking_id)


class AutoLockRenewFailed(ServiceBusError):  # noqa: N818  # Azure's name
    """A lock could not be renewed automatically. The ``__cause__`` is the error that prevented it."""

    code = "AutoLockRenewFailed"


class AutoLockRenewTimeout(ServiceBusError):  # noqa: N818  # Azure's name
    """A lock has been renewed automatically for the requested time. It is not renewed any further."""

    code = "AutoLockRenewTimeout"


ResourceNotFoundError = MessagingEntityNotFoundError
"""The name that Azure's administration client has for this error."""

ResourceExistsError = MessagingEntityAlreadyExistsError
"""The name that Azure's administration client has for this error."""


class WorkerSetupError(ServiceBusError, ValueError):
    """The handlers or the options of a worker do not fit together; the text says which."""

    code = "WorkerSetup"
