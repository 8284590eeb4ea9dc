"""Tests of the destinations of entities: where messages may be forwarded to, and where they may not.

A refused call changes nothing.
"""

# Made by tools/make_sync from tests/management/test_forwarding.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sbredis.management import ServiceBusAdministrationClient

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


Admin = ServiceBusAdministrationClient


def chained(admin: Admin, names: Sequence[str], **last: Any) -> None:
    """Create queues, each of which forwards its messages to the queue whose name comes after its own."""
    admin.create_queue(names[-1], **last)
    for name, destination in zip(names[-2::-1], names[:0:-1], strict=True):
        admin.create_queue(name, forward_to=destination)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_two_queues_may_exchange_dead_letters(admin: Admin) -> None:
    """A message stops in each of the queues, so this makes delayed repetitions and no circle."""
    admin.create_queue("later", dead_lettering_on_message_expiration=True)
    admin.create_queue("main", forward_dead_lettered_messages_to="later")
    admin.update_queue({"name": "later"}, forward_dead_lettered_messages_to="main")
    assert (admin.get_queue("later")).forward_dead_lettered_messages_to == "main"


def test_the_collector_of_dead_letters_does_not_lengthen_a_chain(admin: Admin) -> None:
    """Dead letters are forwarded if they have made fewer than four hops; which of them will is not known in advance."""
    admin.create_queue("dead")
    chained(admin, ["a", "b", "c", "d", "e"], forward_dead_lettered_messages_to="dead")
    admin.update_queue({"name": "a"}, forward_dead_lettered_messages_to="dead")
    assert (admin.get_queue("e")).forward_dead_lettered_messages_to == "dead"
