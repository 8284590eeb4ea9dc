"""The subjects of the API reference: in which order its names stand, and what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["PLUMBING", "SUBJECTS"]

_CLIENTS = ["ServiceBusClient", "check_connection"]
_SENDING = ["ServiceBusSender", "SendStream", "SendResult"]
_SESSIONS = ["ServiceBusSessionReceiver", "ServiceBusSession"]
_ROLES = ["ServiceBusRole", "Tick"]

SUBJECTS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "sbredis": {
        "Clients": [*_CLIENTS, "TransportType"],
        "Messages": [
            "ServiceBusMessage",
            "ServiceBusReceivedMessage",
            "ServiceBusMessageBatch",
            "ServiceBusMessageState",
        ],
        "Sending": _SENDING,
        "Receiving": [
            "ServiceBusReceiver",
            "ServiceBusReceiveMode",
            "ServiceBusSubQueue",
            "AutoLockRenewer",
            "ServiceBusSettler",
        ],
        "Sessions": [*_SESSIONS, "ServiceBusSessionFilter", "NEXT_AVAILABLE_SESSION"],
        "Redriving": ["RedriveBudget", "RedriveResult"],
        "Transactions": ["ServiceBusTransaction"],
        "Roles and schedules": _ROLES,
        "Errors": ["ServiceBusError"],
    },
    "sbredis.aio": {
        "Clients": [*_CLIENTS, "ConnectionReport", "ServerReport", "EntityInfo"],
        "Sending": _SENDING,
        "Receiving": ["ServiceBusReceiver", "AutoLockRenewer", "BackgroundLockRenewer", "ServiceBusSettler"],
        "Sessions": _SESSIONS,
        "Transactions": ["ServiceBusTransaction"],
        "Roles and schedules": _ROLES,
    },
    "sbredis.management": {
        "The client": ["ServiceBusAdministrationClient", "ItemPaged", "Pages", "ApiVersion"],
        "Queues": ["QueueProperties", "QueueRuntimeProperties", "QueueOptions"],
        "Topics": ["TopicProperties", "TopicRuntimeProperties", "TopicOptions"],
        "Subscriptions": [
            "SubscriptionProperties",
            "SubscriptionRuntimeProperties",
            "SubscriptionOptions",
            "NewSubscriptionOptions",
        ],
        "Rules": [
            "RuleProperties",
            "RuleOptions",
            "SqlRuleFilter",
            "SqlRuleAction",
            "CorrelationRuleFilter",
            "TrueRuleFilter",
            "FalseRuleFilter",
        ],
        "States of entities": [
            "EntityStatus",
            "EntityAvailabilityStatus",
            "MessageCountDetails",
            "PartitionRuntimeProperties",
            "UnreadableEntity",
        ],
        "Reservations": ["ReservationStatus", "ReservationPosition"],
        "Namespaces": ["NamespaceProperties", "NamespaceType", "MessagingSku", "AuthorizationRule", "AccessRights"],
    },
    "sbredis.workers": {
        "Workers": ["Worker", "Router", "message_of"],
        "What a handler gets": ["Context", "SyncContext", "Depends", "Property"],
        "What a handler returns": ["Outcome", "Complete", "Abandon", "DeadLetter", "Defer"],
        "Retries and middleware": ["Retries", "Middleware", "Proceed", "CircuitBreaker", "Idempotency", "Logging"],
    },
    "sbredis.testing": {
        "The bus": ["Bus", "SyncBus", "SentMessage", "TestClock"],
        "Running a worker": ["WorkerRun", "SyncWorkerRun", "Handled"],
        "Calling one handler": ["handle", "handle_sync", "HandlerResult", "HandleOptions"],
    },
    "sbredis.servers": {
        "Servers of tests and programs": [
            "LocalServer",
            "LocalCluster",
            "ClusterNode",
            "LocalSentinel",
            "free_port",
        ],
        "Server programs": ["find_server", "ServerBinary", "ServerOrder", "ServerNotFoundError"],
        "Servers in a folder": [
            "acquire",
            "EmbeddedLease",
            "keep",
            "start_kept",
            "find_kept",
            "stop_kept",
            "KeptServer",
        ],
        "Backups": ["back_up", "Backup", "restoring", "Restored", "repairing", "Damage"],
    },
    "sbredis.spark.jobs": {
        "Capture and replay": [
            "Capture",
            "Captured",
            "Replay",
            "read_captured",
            "compact",
            "compacted",
            "partitioned_by_time",
            "replayable",
        ],
        "Reports": [
            "Reported",
            "reported",
            "dead_letter_report",
            "with_fingerprint",
            "resubmittable",
            "latency_report",
            "lives",
            "skew_report",
        ],
    },
    "sbredis.exceptions": {
        "All errors": ["ServiceBusError", "Outcome"],
        "Connections and servers": [
            "InvalidConnectionStringError",
            "ServiceBusConnectionError",
            "ServiceBusCommunicationError",
            "ServiceBusAuthenticationError",
            "ServiceBusAuthorizationError",
            "ServiceBusServerBusyError",
            "OperationTimeoutError",
            "ServerUnsuitableError",
            "ScriptRefusedError",
            "DataLayoutError",
            "NamespaceMissingError",
            "NamespaceSlotsError",
        ],
        "Entities": [
            "MessagingEntityNotFoundError",
            "MessagingEntityAlreadyExistsError",
            "MessagingEntityDisabledError",
            "ResourceNotFoundError",
            "ResourceExistsError",
            "ServiceBusQuotaExceededError",
            "RuleSyntaxError",
        ],
        "Messages and locks": [
            "MessageSizeExceededError",
            "MessageNotFoundError",
            "MessageAlreadySettled",
            "MessageLockLostError",
            "MessageBodyError",
            "AutoLockRenewFailed",
            "AutoLockRenewTimeout",
            "RedriveInProgressError",
        ],
        "Sessions": ["SessionCannotBeLockedError", "SessionLockLostError"],
        "Transactions": ["KeyAlreadyUsedError", "WatermarkChangedError"],
        "Workers": ["WorkerSetupError"],
        "Reading and writing in bulk": [
            "EntityReservedError",
            "ReservationLostError",
            "ReservationTimeoutError",
            "BatchConflictError",
            "BatchInterruptedError",
            "RowRefusedError",
            "MessagesLostError",
            "SparkSetupError",
        ],
    },
}
"""For a package with many names: its subjects, each with its names in the order of the page. Every name has a place.

The names of the other packages are in the order of the alphabet, and the classes come first.
"""

PLUMBING: Mapping[str, frozenset[str]] = {
    "AutoLockRenewer": frozenset({"check_open"}),
    "Bus": frozenset({"discard"}),
    "CircuitBreaker": frozenset({"begin", "room", "wait"}),
    "LocalServer": frozenset({"prepare", "launch", "await_ready"}),
    "SendStream": frozenset({"halt"}),
    "Worker": frozenset({"run_command"}),
    "WorkerRun": frozenset({"hurrying", "not_true"}),
    **dict.fromkeys(
        ("QueueProperties", "RuleProperties", "SubscriptionProperties", "TopicProperties"),
        frozenset({"fields", "shown"}),
    ),
}
"""The members of public classes that only other parts of sbredis call, so that no reader looks for them."""
