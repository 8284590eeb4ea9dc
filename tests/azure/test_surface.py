"""Tests that the public API equals Azure's, except for the rows of the table of differences."""

from __future__ import annotations

from copy import deepcopy
from fnmatch import fnmatchcase

from tests.azure.differences import ROWS
from tests.azure.surface import AZURE, differences
from tests.offenders import for_each

ACCEPTED = {
    # clients
    "sbredis*ServiceBusClient(credential): may be left out": "credential",
    "sbredis*Client(fully_qualified_namespace): may be left out": "client-options",
    "sbredis*ServiceBusClient(retry_*): * unless said, not *": "retries",
    "sbredis*Client(namespace): added": "client-options",
    "sbredis*Client(slot_count): added": "client-options",
    "sbredis*Client(connect_timeout): added": "client-options",
    "sbredis*ServiceBusClient.namespace: added": "client-options",
    "sbredis*ServiceBusClient.describe_entity: added": "describe-entity",
    "sbredis*.EntityInfo: added": "describe-entity",
    "sbredis*ServiceBusClient.server_time: added": "server-time",
    "sbredis*ServiceBusClient.peek_session_state: added": "peek-session-state",
    "sbredis*ServiceBusClient.get_receiver: added": "by-path",
    "sbredis*ServiceBusClient.get_sender: added": "by-path",
    "sbredis*ServiceBusClient.from_redis: added": "from-redis",
    "sbredis*ServiceBusClient(maintenance): added": "maintenance",
    "sbredis*ServiceBusClient.maintain: added": "maintenance",
    "sbredis*ServiceBusClient.wait_closed: added": "wait-closed",
    "sbredis*ServiceBusClient.claim_role: added": "roles",
    "sbredis*.ServiceBusRole: added": "roles",
    "sbredis*ServiceBusClient.tick: added": "ticks",
    "sbredis*.Tick: added": "ticks",
    "sbredis*ServiceBusClient.accept_next_session: added": "accept-next-session",
    "sbredis*ServiceBusClient.transaction: added": "transactions",
    "sbredis*.ServiceBusTransaction: added": "transactions",
    "sbredis*.fully_qualified_namespace: missing": "fully-qualified-namespace",
    "sbredis*(create_if_missing): added": "create-if-missing",
    "sbredis*.ensure_*: added": "create-if-missing",
    "sbredis*.check_connection: added": "check-connection",
    "sbredis.aio.ConnectionReport: added": "check-connection",
    "sbredis.aio.ServerReport: added": "check-connection",
    "sbredis.ServiceBusConnectionStringProperties: missing": "connection-string",
    "sbredis.parse_connection_string: missing": "connection-string",
    "sbredis.ServiceBusError: added": "imports",
    "sbredis.__version__: added": "imports",
    # senders
    "sbredis*.get_*_sender(max_in_flight*): added": "throttle",
    "sbredis*ServiceBusSender.in_flight: added": "more-facts",
    "sbredis*ServiceBusSender.send_stream: added": "send-stream",
    "sbredis*SendResult: added": "send-stream",
    "sbredis*SendStream: added": "send-stream",
    "sbredis*.list_*_sessions(skip): added": "session-lists",
    "sbredis*.list_*_sessions(top): added": "session-lists",
    "sbredis.management.*.read_as: added": "update-renamed",
    # receivers
    "sbredis*.get_*_receiver(adaptive_prefetch): added": "adaptive-prefetch",
    "sbredis*ServiceBusReceiver.receive_mode: added": "more-facts",
    "sbredis*ServiceBusReceiver.prefetch_count: added": "prefetch-count",
    "sbredis*ServiceBusReceiver.traces: added": "process-span",
    "sbredis*ServiceBusReceiver.*_message(delay): added": "settle-options",
    "sbredis*ServiceBusReceiver.*_message(properties_to_modify): added": "settle-options",
    "sbredis*ServiceBusReceiver.*_message(timeout): added": "settle-options",
    "sbredis*ServiceBusReceiver.complete_messages: added": "complete-many",
    "sbredis*ServiceBusReceiver.process_span: added": "process-span",
    "sbredis*ServiceBusReceiver.receive_messages(gather): added": "no-gathering",
    "sbredis*ServiceBusReceiver.release_message: added": "release-message",
    "sbredis*.ServiceBusSessionReceiver: added": "session-receiver",
    "sbredis*ServiceBusSession.lock_token: added": "lock-tokens",
    "sbredis*ServiceBusClient.get_settler: added": "lock-tokens",
    "sbredis*ServiceBusClient.request: added": "request",
    "sbredis*.ServiceBusSettler: added": "lock-tokens",
    "sbredis*ServiceBusReceiver.peek_messages(session_id): added": "session-unlocked",
    "sbredis*ServiceBusReceiver.delete_messages: added": "delete-purge",
    "sbredis*ServiceBusReceiver.purge_messages: added": "delete-purge",
    "sbredis*ServiceBusReceivedMessage.fence: added": "fence",
    "sbredis*ServiceBusReceivedMessage.interrupted: added": "release-message",
    "sbredis*ServiceBusReceivedMessage.is_modified: added": "raw-amqp",
    "sbredis*ServiceBusSession.fence: added": "fence",
    "sbredis*ServiceBusReceiver.redrive_messages: added": "redrive",
    "sbredis*ServiceBusReceiver.*_messages_by_number: added": "by-number",
    "sbredis*.list_reservations: added": "reservations",
    "sbredis*.list_partitions: added": "partitions-shown",
    "sbredis*.has_maintenance: added": "partitions-shown",
    "sbredis.management.PartitionRuntimeProperties: added": "partitions-shown",
    "sbredis*.list_unreadable_entities: added": "unreadable",
    "sbredis.management.UnreadableEntity: added": "unreadable",
    "sbredis*.release_reservation: added": "reservations",
    "sbredis*.forget_writer: added": "bulk-writers",
    "sbredis.exceptions.Batch*: added": "bulk-writers",
    "sbredis.management.*duplicate_detection_history_max_ids*: added": "remembered-ids",
    "sbredis.aio.management.*duplicate_detection_history_max_ids*: added": "remembered-ids",
    "sbredis.management.*audit*: added": "audit",
    "sbredis.aio.management.*audit*: added": "audit",
    "sbredis.management.*protected*: added": "protected",
    "sbredis.aio.management.*protected*: added": "protected",
    "sbredis.management.ReservationPosition: added": "reservations",
    "sbredis.management.ReservationStatus: added": "reservations",
    "sbredis.RedriveBudget: added": "redrive",
    "sbredis.RedriveResult: added": "redrive",
    "sbredis*ServiceBusReceiver.add_credit: added": "credit",
    "sbredis*ServiceBusReceiver.drain: added": "credit",
    "sbredis*ServiceBusSession.locked: added": "session-lock-lost",
    "sbredis*ServiceBusSession.wait_lock_lost: added": "session-lock-lost",
    "sbredis*ServiceBusSession.dead_letter_messages: added": "dead-letter-session",
    "sbredis*AutoLockRenewer.c*: added": "more-facts",
    "sbredis*.BackgroundLockRenewer: added": "background-renewer",
    # messages
    "sbredis.ServiceBus*.message: missing": "old-names",
    "sbredis*.has_key: missing": "old-names",
    "sbredis.ServiceBusReceivedMessage.from_bytes: missing": "from-bytes",
    "sbredis.ServiceBusReceivedMessage.is_suspect: added": "suspects",
    "sbredis.ServiceBusReceivedMessage.dead_letter_source_sequence_number: added": "dead-letter-numbers",
    "sbredis*Message*raw_amqp*: added": "raw-amqp",
    "sbredis*ServiceBusSender.*: refuses other keywords": "unknown-keywords",
    "sbredis*ServiceBusReceiver.*: refuses other keywords": "unknown-keywords",
    "sbredis*ServiceBusSession.*: refuses other keywords": "unknown-keywords",
    "sbredis.ServiceBusMessageBatch: refuses other keywords": "unknown-keywords",
    "sbredis.amqp.*: refuses other keywords": "unknown-keywords",
    "sbredis.amqp.AmqpMessage*.clear: added": "amqp-annotations",
    "sbredis.amqp.AmqpMessage*.pop*: added": "amqp-annotations",
    "sbredis.amqp.AmqpMessage*.setdefault: added": "amqp-annotations",
    # administration
    "sbredis*ServiceBusAdministrationClient(credential): may be left out": "credential",
    "sbredis*ServiceBusAdministrationClient(api_version): * unless said, not *": "client-options",
    "sbredis*ServiceBusAdministrationClient(timeout): added": "client-options",
    "sbredis*ServiceBusAdministrationClient.from_connection_string(*): added": "client-options",
    "sbredis*ServiceBusAdministrationClient.*: refuses other keywords": "unknown-keywords",
    "sbredis*ServiceBusAdministrationClient.*(timeout): added": "timeouts",
    "sbredis*.create_*(partition_count): added": "partition-count",
    "sbredis.management.*Properties*partition_count*: added": "partition-count",
    "sbredis*.create_*(colocate_with): added": "colocate-with",
    "sbredis.management.*Properties*colocate_with*: added": "colocate-with",
    "sbredis*.create_*(status): added": "queue-options",
    "sbredis.management.*Options: added": "queue-options",
    "sbredis.management.*RuntimeProperties.*: added": "queue-options",
    "sbredis.management.*RuntimeProperties(*): added*": "made-properties",
    "sbredis.management.*Properties(*): may be left out": "made-properties",
    "sbredis.management.*Properties.[fgks]*: added": "made-properties",
    "sbredis.management.NamespaceProperties*slot_count*: added": "slot-count",
    "sbredis.management.NamespaceProperties*max_*: added": "namespace-limits",
    "sbredis.management.NamespaceProperties*entity_count*: added": "namespace-limits",
    "sbredis.management.NamespaceProperties*size_in_megabytes*: added": "namespace-limits",
    "sbredis.management.NamespaceProperties*availability_status*: added": "namespace-limits",
    "sbredis.management.NamespaceProperties*unreachable_slots*: added": "namespace-limits",
    "sbredis*ServiceBusAdministrationClient.set_namespace_limits: added": "namespace-limits",
    "sbredis.management.NamespaceProperties.*s: missing": "namespace-facts",
    "sbredis.management.NamespaceProperties.get: missing": "namespace-facts",
    "sbredis.management.NamespaceProperties.update: missing": "namespace-facts",
    "sbredis*ServiceBusAdministrationClient.list_*(skip): added": "list-parts",
    "sbredis*ServiceBusAdministrationClient.list_*(top): added": "list-parts",
    "sbredis*management.*Pages: added": "paging",
    "sbredis*management.*ItemPaged: added": "paging",
    "sbredis*.*_exists: added": "exists",
    "sbredis*.create_subscription(rules): added": "first-rules",
    "sbredis.management.*RuleFilter.*: added": "rule-values",
    "sbredis.management.MessageCountDetails*": "count-details",
    # exceptions
    "sbredis.exceptions.ServiceBusError: no AzureError": "exceptions-base",
    "sbredis.exceptions.Resource*Error: added": "exceptions-base",
    "sbredis.exceptions.ServiceBusAuth*Error: not transient": "not-transient",
    "sbredis.exceptions.Outcome: added": "error-facts",
    "sbredis.exceptions.[DEIKMNRSW]*Error: added": "more-errors",
}
"""The accepted differences: a pattern for the lines of :func:`differences`, and the table row that documents them."""

FOUND = differences()


def test_only_documented_differences_exist() -> None:
    assert [line for line in FOUND if not any(fnmatchcase(line, pattern) for pattern in ACCEPTED)] == []


def test_every_documented_difference_exists() -> None:
    assert [pattern for pattern in ACCEPTED if not any(fnmatchcase(line, pattern) for line in FOUND)] == []


@for_each("row", sorted(set(ACCEPTED.values())))
def test_every_row_that_accepts_a_difference_is_in_the_table(row: str) -> None:
    assert row in ROWS


def test_row_names_are_unique() -> None:
    assert sorted(set(ROWS)) == sorted(ROWS)


def test_a_made_up_difference_is_found() -> None:
    other = deepcopy(AZURE)
    synchronous, asynchronous = other["modules"]["sbredis"], other["modules"]["sbredis.aio"]
    receiver, message = asynchronous["ServiceBusReceiver"]["members"], synchronous["ServiceBusMessage"]["members"]
    receiver["receive_messages"]["parameters"][0]["default"] = 5
    receiver["fetch"] = {"kind": "coroutine", "parameters": []}
    receiver["close"]["kind"] = "method"
    message["__init__"]["parameters"].append({"name": "label", "keyword": True, "default": None})
    synchronous["ServiceBusReceivedMessage"]["members"]["sequence_number"]["settable"] = True
    synchronous["ServiceBusSubQueue"]["enum"]["SIDE"] = "side"
    other["exceptions"]["MessageLockLostError"]["transient"] = True
    assert set(differences(other)) - set(FOUND) == {
        "sbredis.aio.ServiceBusReceiver.receive_messages(max_message_count): 1 unless said, not 5",
        "sbredis.aio.ServiceBusReceiver.fetch: missing",
        "sbredis.aio.ServiceBusReceiver.close: to be awaited",
        "sbredis.ServiceBusMessage(label): missing",
        "sbredis.ServiceBusReceivedMessage.sequence_number: not to be set",
        "sbredis.ServiceBusSubQueue: ('SIDE', 'side')",
        "sbredis.exceptions.MessageLockLostError: not transient",
    }
