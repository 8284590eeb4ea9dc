"""Registering messages with renewers: several renewers, wrong arguments, and copies of messages."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import pytest

import sbredis
from sbredis.aio import AutoLockRenewer
from sbredis.exceptions import MessageLockLostError
from sbredis.model import hold_of
from tests.aio.gates import Gate
from tests.aio.queues import HandClock, in_memory, queue_at

pytestmark = in_memory


async def test_a_message_registered_twice_is_forgotten_by_both_renewers(url: str) -> None:
    async with queue_at(url) as queue, AutoLockRenewer() as one, AutoLockRenewer() as other:
        await queue.send("a")
        receiver = queue.receiver(auto_lock_renewer=one)
        (message,) = await receiver.receive_messages(1, 60)
        one.register(receiver, message, max_lock_renewal_duration=1000)
        other.register(receiver, message)
        await receiver.complete_message(message)
        assert not hold_of(message).watchers
        assert not [watched for renewer in (one, other) for _, _, watched in renewer._renewals._due if watched.locks]


async def test_a_message_whose_lock_lapses_during_its_settlement_is_forgotten(url: str) -> None:
    clock = HandClock()
    async with queue_at(url, clock=clock) as queue, AutoLockRenewer(10_000) as renewer:
        await queue.send("a")
        receiver = queue.receiver(auto_lock_renewer=renewer)
        (message,) = await receiver.receive_messages(1, 60)
        with Gate(queue.client, "complete") as gate:
            gate.shut = True
            settling = asyncio.ensure_future(receiver.complete_message(message))
            await gate.reached()
            clock.move(3600)
            await queue.process_due()
            renewer._renewals._renew()
            assert not [watched for _, _, watched in renewer._renewals._due if watched.locks]
            gate.open()
            with pytest.raises(MessageLockLostError):
                await settling
        assert message.auto_renew_error is None


async def test_arguments_of_a_wrong_type_are_refused(url: str) -> None:
    async with queue_at(url) as queue, AutoLockRenewer() as renewer:
        await queue.send("a")
        wrong: list[Any] = [sbredis.AutoLockRenewer(), 5]
        for given in wrong:
            with pytest.raises(TypeError, match="AutoLockRenewer"):
                queue.receiver(auto_lock_renewer=given)
        (message,) = await queue.receiver().receive_messages(1, 60)
        for given in (queue.client.get_queue_sender(queue.entity.name), object()):
            with pytest.raises(TypeError, match="receiver"):
                renewer.register(given, message)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="function"):
            AutoLockRenewer(on_lock_renew_failure=5)  # type: ignore[arg-type]
        for given in (None, 1, "yes"):
            with pytest.raises(TypeError, match="create_if_missing"):
                queue.receiver(create_if_missing=given)
        with pytest.raises(TypeError, match="max_size_in_bytes"):
            await queue.client.get_queue_sender(queue.entity.name).create_message_batch("5")  # type: ignore[arg-type]


async def test_a_copy_of_a_message_has_no_lock_and_no_watcher(url: str) -> None:
    async with queue_at(url) as queue, AutoLockRenewer() as renewer:
        await queue.send("a")
        receiver = queue.receiver(auto_lock_renewer=renewer)
        (message,) = await receiver.receive_messages(1, 60)
        for made in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):  # noqa: S301  # our own
            assert (made.body, made.sequence_number, made.lock_token) == (b"a", message.sequence_number, None)
            with pytest.raises(ValueError, match="copy"):
                await receiver.complete_message(made)
        await receiver.complete_message(message)
