"""Decoders read damaged inputs as values, or refuse them with their own error, within limits of time and memory.

``make prove WHAT=bytes`` is the long form of these tests.
"""

from __future__ import annotations

import re

import pytest

from tests.engine.test_contracts import REQUESTS
from tests.hostile.decoders import DECODERS
from tests.hostile.planted import PLANTED
from tests.hostile.replies import REPLIES
from tests.hostile.run import search_all
from tests.hostile.trials import input_of, search
from tests.offenders import for_each

_INPUTS = 300
_UNTIL_FOUND = 200_000


@for_each("name", DECODERS)
def test_a_decoder_reads_its_valid_inputs(name: str) -> None:
    decoder = DECODERS[name]
    for given in decoder.inputs:
        decoder.read(given)


@for_each("name", DECODERS)
def test_a_decoder_refuses_damaged_inputs_with_its_own_error(name: str) -> None:
    found = search(DECODERS[name], 1, iter(range(_INPUTS)))
    assert not found.findings, "\n".join(map(str, found.findings))
    assert 0 < found.values <= found.trials == _INPUTS  # many inputs are read as values


def test_every_script_has_a_valid_reply() -> None:
    assert set(REPLIES) == set(REQUESTS)


def test_a_seed_gives_the_same_inputs_in_each_run() -> None:
    decoder = DECODERS["message"]
    inputs = [repr(input_of(decoder, 5, number)) for number in range(200)]
    assert inputs == [repr(input_of(decoder, 5, number)) for number in range(200)]
    assert inputs != [repr(input_of(decoder, 6, number)) for number in range(200)]


@pytest.mark.long("each search starts processes that need seconds")
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("loop", "takes more than 1 s"),
        ("expansion", r"takes [0-9,]+ bytes for|takes all memory|takes more than 1 s"),
        ("error", "ValueError: invalid literal"),
        ("deafness", "hangs, or has crashed"),
    ],
)
def test_the_search_finds_planted_faults(name: str, what: str) -> None:
    found = search_all(PLANTED, inputs=_UNTIL_FOUND, seconds=600, names=[name], workers=1, most=1)[name]
    assert found.findings
    assert re.search(what, found.findings[0].what)
