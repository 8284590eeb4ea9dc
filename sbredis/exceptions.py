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
    ├── WatermarkChangedError               a watermark has another value than this transaction expects
    ├── MessageNotFoundError                there is no such message in the required state
    ├── MessageAlreadySettled               (also a ValueError) the message was settled before
    ├── SessionCannotBeLockedError          another receiver has the lock on the session
    ├── SessionLockLostError                the lock on a session has ended, or belongs to another receiver
    ├── RedriveInProgressError              another redrive of the same dead-letter queue is running
    ├── EntityReservedError                 the entity is reserved for a consumer
    ├── ReservationTimeoutError             messages were still locked or delayed when an entity was to be reserved
    ├── ReservationLostError                another run of the consumer, or a release, has ended the reservation
    ├── MessagesLostError                   messages of a reserved entity are lost, or the position is not its own
    ├── BatchConflictError                  a bulk writer has other rows than an earlier run of its batch
    ├── BatchInterruptedError               a failover has lost rows of a batch while a bulk writer stored them
    ├── RowRefusedError                     (also a ValueError) a row of a bulk writer is not a valid message
    ├── RuleSyntaxError                     (also a ValueError) the text of a filter or an action is not valid
    ├── AutoLockRenewFailed                 a lock could not be renewed automatically
    ├── AutoLockRenewTimeout                a lock has been renewed for the requested time, and is not renewed further
    ├── NamespaceSlotsError                 (also a ValueError) the namespace has another number of slots
    ├── DataLayoutError                     data cannot be read: another release wrote them, or they are damaged
    ├── WorkerSetupError                    (also a ValueError) the handlers or options of a worker do not fit together
    ├── SparkSetupError                     (also a ValueError) a wrong option of the Spark format, or a missing part
    └── InvalidConnectionStringError        (also a ValueError) the connection string is malformed

Every error says what happened and whether a retry can help (:attr:`ServiceBusError.is_transient`). It says what is
known about the effect of the operation (:attr:`ServiceBusError.outcome`). Its :attr:`ServiceBusError.tracking_id` is
also written to the log. Its class has a :attr:`ServiceBusError.code`, a short name that stays the same across
releases. If Azure's libraries have a name for the reason (``ServiceBusFailureReason`` in .NET), the code is that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._root_error import Outcome, ServiceBusError

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

__all__ = [
    "AutoLockRenewFailed",
    "AutoLockRenewTimeout",
    "BatchConflictError",
    "BatchInterruptedError",
    "DataLayoutError",
    "EntityReservedError",
    "InvalidConnectionStringError",
    "KeyAlreadyUsedError",
    "MessageAlreadySettled",
    "MessageBodyError",
    "MessageLockLostError",
    "MessageNotFoundError",
    "MessageSizeExceededError",
    "MessagesLostError",
    "MessagingEntityAlreadyExistsError",
    "MessagingEntityDisabledError",
    "MessagingEntityNotFoundError",
    "NamespaceMissingError",
    "NamespaceSlotsError",
    "OperationTimeoutError",
    "Outcome",
    "RedriveInProgressError",
    "ReservationLostError",
    "ReservationTimeoutError",
    "ResourceExistsError",
    "ResourceNotFoundError",
    "RowRefusedError",
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
    "SparkSetupError",
    "WatermarkChangedError",
    "WorkerSetupError",
]


for _kind in (Outcome, ServiceBusError):
    _kind.__module__ = __name__  # tracebacks, pickles and spans name the public module


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

    The engine turns the codes of its own scripts into the named errors of Service Bus.
    """

    code = "ScriptRefused"

    reply_code: str
    """The first word of the reply."""
    detail: str
    """The rest of the reply."""
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

    key: str | int | UUID | bytes | None = None
    """The key, as the transaction gave it."""


class WatermarkChangedError(ServiceBusError):
    """A watermark does not have the value that a transaction expects. The transaction has changed nothing.

    So another transaction has advanced the watermark before.
    """

    code = "WatermarkChanged"

    name: str | None = None
    """The name of the watermark."""
    value: str | None = None
    """The value that the watermark has; ``None`` if the watermark is not there."""
    sequence_number: int | None = None
    """The sequence number of the last message that was sent with this watermark; ``None`` if there was none."""


class MessageNotFoundError(ServiceBusError):
    """There is no message of that number in a state that the operation accepts."""

    code = "MessageNotFound"


class NamespaceSlotsError(ServiceBusError, ValueError):
    """The namespace has another number of slots than the caller gave. The number is fixed at creation."""

    code = "NamespaceSlots"


class DataLayoutError(ServiceBusError):
    """Data that are stored or were sent cannot be read.

    Another release of sbredis wrote them in a layout that this release cannot read, or can no longer read, or they are
    damaged. The text says what cannot be read. It does not contain the data.
    If they describe an entity, :attr:`~ServiceBusError.entity` names it, and the text says what to do.
    """

    code = "DataLayout"

    layout: str | None = None
    """The layout of the data, if another release has written them; ``None`` if they are damaged."""
    reason: str | None = None
    """Why the data cannot be read, in a few words; ``None`` if the text says it."""


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


class EntityReservedError(ServiceBusError):
    """The entity is reserved for a consumer that reads it in bulk. The text says for which one, and how to release it.

    Other receivers are refused until the reservation is released. So are a deletion and ``forward_to``.
    """

    code = "EntityReserved"

    consumer: str | None = None
    """The consumer that has reserved the entity; ``None`` if it is not known."""
    owner: str | None = None
    """The run of the consumer, as it has described itself, for instance with its host and its application."""
    since: datetime | None = None
    """The time of the reservation, in UTC."""
    last_seen: datetime | None = None
    """The time of the consumer's last call, in UTC; ``None`` if there was no call yet, or if the time is not known."""


class ReservationTimeoutError(ServiceBusError):
    """Messages of an entity were still locked or delayed when the time to reserve it was over.

    The entity is open again. The text says which messages the reservation waited for.
    """

    code = "ReservationTimeout"
    is_transient = True


class ReservationLostError(ServiceBusError):
    """The reservation of an entity has ended: another run of the consumer has taken it over, or it was released."""

    code = "ReservationLost"


class MessagesLostError(ServiceBusError):
    """The consumer's position does not fit the messages of a reserved entity, so messages may be lost.

    A failover may have lost messages, the entity may have been deleted and created again, or the position may be from
    an older checkpoint. The text says which, and how to go on.
    """

    code = "MessagesLost"


class BatchConflictError(ServiceBusError):
    """A bulk writer has other rows than an earlier run of the same task and batch, or a later batch was written.

    The text names the writer, the batch, the task and the chunk of rows. The rows of a task must be the same in every
    run, and so must be the number of tasks of a batch.
    """

    code = "BatchConflict"


class BatchInterruptedError(ServiceBusError):
    """A failover has lost rows of a batch while a bulk writer was storing them.

    Run the task again from its beginning. The rows that are stored are not stored again.
    """

    code = "BatchInterrupted"
    is_transient = True


class RowRefusedError(ServiceBusError, ValueError):
    """Rows of a bulk writer are not valid messages. No row of the same call was stored."""

    code = "RowRefused"

    rows: tuple[int, ...] = ()
    """The indices of the refused rows among all rows of the task, counted from 0."""


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
        text: str = "",
        tracking_id: str | None = None,
    ) -> None:
        self.text = text
        """The text with the mistake."""
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


class SparkSetupError(ServiceBusError, ValueError):
    """An option or a column of the Spark format ``sbredis`` does not fit, or a part that it needs is not installed."""

    code = "SparkSetup"


class WorkerSetupError(ServiceBusError, ValueError):
    """The handlers or the options of a worker do not fit together; the text says which."""

    code = "WorkerSetup"

    def __str__(self) -> str:
        """Return the message alone: the program is wrong, so there is no operation to repeat or to find in a log."""
        return self.message
