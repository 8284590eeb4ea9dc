"""Tests of what a master says about its replicas."""

from __future__ import annotations

from typing import Any

import pytest

from sbredis.exceptions import ServerUnsuitableError
from sbredis.transport import Endpoint
from sbredis.transport._replicas import replicas_in


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ([b"master", 7, [[b"10.0.0.1", b"6379", b"7"], [b"::1", b"6380", b"5"]]], [("10.0.0.1", 6379), ("::1", 6380)]),
        ([b"master", 7, []], []),
        ([b"master", 7, [[b"", b"0", b"0"]]], []),
        ([b"slave", b"10.0.0.1", 6379, b"connected", 7], []),
        (b"sentinel", []),
    ],
)
def test_the_answer_to_role_has_the_replicas(reply: Any, found: list[tuple[str, int]]) -> None:
    assert replicas_in(reply) == [Endpoint(*each) for each in found]


@pytest.mark.parametrize("replicas", [[7], [[b"h", b"x", b"0"]], [[b"h", b"1"]], [["h", b"1", b"0"]]])
def test_another_answer_is_refused(replicas: Any) -> None:
    with pytest.raises(ServerUnsuitableError, match="The answer to ROLE cannot be read"):
        replicas_in([b"master", 7, replicas])
