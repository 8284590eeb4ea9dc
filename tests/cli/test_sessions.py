"""``sbredis session``: sessions and their states are shown without a lock."""

from __future__ import annotations

import base64

from sbredis import ServiceBusClient
from sbredis.servers import LocalServer
from tests.cli.conftest import Command


def test_sessions_are_listed_and_their_states_are_shown(sbredis: Command, server: LocalServer) -> None:
    assert sbredis("queue", "create", "chats", "--requires-session").code == 0
    nothing = sbredis("session", "list", "chats")
    assert (nothing.code, nothing.err) == (3, "no sessions\n")
    for session in ("ann", "bob", "cat"):
        assert sbredis("send", "chats", "hello", "--session", session).code == 0
    with ServiceBusClient(server.url) as client, client.get_queue_receiver("chats", session_id="ann") as receiver:
        assert receiver.session is not None
        for state, shown in (
            ("half", {"state": "half"}),
            (b"\xff", {"state_base64": base64.b64encode(b"\xff").decode()}),
        ):
            receiver.session.set_state(state)
            found = sbredis("session", "show", "chats", "ann", "--output", "json")
            assert (found.code, found.json) == (0, {"session": "ann", "bytes": len(state), **shown})
        assert receiver.session.get_state() == b"\xff"
        assert sbredis("session", "list", "chats").out.split() == ["SESSION", "ann", "bob", "cat"]
    some = sbredis("session", "list", "chats", "--count", "2")
    assert some.out.split() == ["SESSION", "ann", "bob"]
    without = sbredis("session", "show", "chats", "bob")
    assert (without.code, "state    -" in without.out) == (3, True)


def test_the_sessions_of_a_subscription_are_listed(sbredis: Command) -> None:
    assert sbredis("topic", "create", "news").code == 0
    assert sbredis("subscription", "create", "news", "all", "--requires-session").code == 0
    assert sbredis("send", "news", "hello", "--session", "ann").code == 0
    assert sbredis("session", "list", "news/subscriptions/all", "--output", "json").json == [{"session": "ann"}]


def test_an_entity_without_sessions_is_refused(sbredis: Command) -> None:
    assert sbredis("queue", "create", "plain").code == 0
    for arguments in (("list", "plain"), ("show", "plain", "ann")):
        refused = sbredis("session", *arguments)
        assert refused.code == 1
        assert "has no sessions" in refused.err
