"""Tests of entity names in administration: names that a program changes, and names that are too long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient as Admin
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ResourceNotFoundError
from sbredis.management import QueueProperties
from tests.management.conftest import held
from tests.management.refusals import refused

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True], ids=["to a new name", "to the name of another one"])
async def test_an_update_cannot_rename_an_entity(admin: Admin, *, there: bool) -> None:
    """The refused update changes nothing, even if another entity has the new name."""
    for name in ("one", "two") if there else ("one",):
        await admin.create_queue(f"q-{name}")
        await admin.create_topic(f"t-{name}")
        await admin.create_subscription("t-one", f"s-{name}")
        await admin.create_rule("t-one", "s-one", f"r-{name}")
    queue, topic = await admin.get_queue("q-one"), await admin.get_topic("t-one")
    subscription, rule = await admin.get_subscription("t-one", "s-one"), await admin.get_rule("t-one", "s-one", "r-one")
    given: Any
    for given in (queue, topic, subscription):
        given.user_metadata = "changed"
    for given in (queue, topic, subscription, rule):
        given.name = given.name.replace("one", "two")
    updates: dict[str, Callable[[], Awaitable[None]]] = {
        "q-one": lambda: admin.update_queue(queue),
        "t-one": lambda: admin.update_topic(topic),
        "s-one": lambda: admin.update_subscription("t-one", subscription),
        "r-one": lambda: admin.update_rule("t-one", "s-one", rule),
    }
    for name, update in updates.items():
        before = await held(admin)
        with pytest.raises(ResourceNotFoundError, match=f"'{name}' cannot be renamed") as caught:
            await update()
        assert caught.value.outcome is Outcome.NEVER_SENT
        assert not caught.value.is_transient
        assert await held(admin) == before
    for given in (queue, topic, subscription, rule):
        # the same name, because names are compared without regard to case
        given.name = given.name.replace("two", "ONE")
    for update in updates.values():
        await update()
    assert (await admin.get_queue("q-one")).user_metadata == "changed"


@in_memory
async def test_properties_with_a_new_name_describe_a_different_entity(admin: Admin) -> None:
    """Properties that were read can be used to create an entity under a new name.

    Properties that a program constructs update the entity whose name they carry.
    """
    await admin.create_queue("one", max_delivery_count=3)
    found = await admin.get_queue("one")
    found.name = "two"
    created = await admin.create_queue(found.name, max_delivery_count=found.max_delivery_count)
    assert (created.name, created.max_delivery_count) == ("two", 3)
    made = QueueProperties("nobody", user_metadata="ours")
    await refused(admin, admin.update_queue(made), MessagingEntityNotFoundError, "There is no entity 'nobody'")
    made.name = "two"
    await admin.update_queue(made)
    assert (await admin.get_queue("two")).user_metadata == "ours"
