"""Tests that an enumeration lists the valid values when it refuses an unknown one."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

import sbredis
import sbredis.aio
from sbredis import amqp, management, model
from sbredis.management import QueueProperties

ENUMS: list[type[Enum]] = [
    model.ServiceBusReceiveMode,
    model.ServiceBusSubQueue,
    model.ServiceBusMessageState,
    model.TransportType,
    management.AccessRights,
    management.ApiVersion,
    management.EntityAvailabilityStatus,
    management.EntityStatus,
    management.MessagingSku,
    management.NamespaceType,
    amqp.AmqpMessageBodyType,
]


@pytest.mark.parametrize("enum", ENUMS)
@pytest.mark.parametrize("wrong", ["foo", None, 77])
def test_the_error_for_a_wrong_value_lists_the_valid_values(enum: type[Enum], wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"^{wrong!r} is not a value of {enum.__name__}; the values are ") as caught:
        enum(wrong)
    assert all(repr(one.value) in str(caught.value) for one in enum)
    assert [enum(one.value) for one in enum] == list(enum)


@pytest.mark.parametrize(
    ("options", "right"),
    [
        ({"receive_mode": "foo"}, "'peeklock' and 'receiveanddelete'"),
        ({"sub_queue": "foo"}, "'deadletter' and 'transferdeadletter'"),
    ],
)
def test_the_error_for_a_wrong_receiver_option_lists_the_valid_values(options: dict[str, Any], right: str) -> None:
    with sbredis.ServiceBusClient("memory://enums") as client:
        for made in (client, sbredis.aio.ServiceBusClient("memory://enums")):
            with pytest.raises(ValueError, match=f"the values are {right}"):
                made.get_queue_receiver("q", **options)
            with pytest.raises(ValueError, match=f"the values are {right}"):
                made.get_subscription_receiver("t", "s", **options)


def test_the_error_for_an_invalid_status_lists_the_valid_values() -> None:
    with pytest.raises(ValueError, match="must be one of Active, Disabled, SendDisabled, ReceiveDisabled, not 'foo'"):
        QueueProperties("q", status="foo")
