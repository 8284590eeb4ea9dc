"""Which libraries of functions may be deleted from a server."""

from __future__ import annotations

import pytest

from sbredis.maintenance import LibraryState
from sbredis.maintenance._library_judgement import judge_libraries
from sbredis.registry import NamedLibraries

DAY = 86_400_000
NOW = 100 * DAY
OWN, A, B, C, D, E, F = (f"sb_{letter * 16}" for letter in "0abcdef")


@pytest.mark.parametrize(
    ("loaded", "named", "deleted"),
    [
        pytest.param([OWN], {}, [], id="only its own"),
        pytest.param([OWN, A, B, C], {A: 1, B: 2, C: 3}, [], id="four are kept however old they are"),
        pytest.param([OWN, A, B, C, D], {A: 1, B: 2, C: 3, D: 4}, [A], id="the oldest of five"),
        pytest.param([OWN, A, B, C, D], {A: 4, B: 3, C: 2, D: 1}, [D], id="whatever their order"),
        pytest.param([OWN, A, B, C, D, E], {A: 1, B: 2, C: 3, D: 4, E: 5}, [A, B], id="until four are left"),
        pytest.param([OWN, A, B, C, D, E], {B: 2}, [B], id="never one that the registry does not know"),
        pytest.param([OWN, A, B, C, D, E], {}, [], id="nothing is known"),
        pytest.param([OWN, A, B, C, D], dict.fromkeys([A, B, C, D], NOW - 7 * DAY), [], id="seven days"),
        pytest.param([OWN, A, B, C, D], dict.fromkeys([A, B, C, D], NOW - 7 * DAY - 1), [A], id="more than seven days"),
        pytest.param([OWN, A, B, C, D], dict.fromkeys([A, B, C, D], NOW + 9 * DAY), [], id="a clock that was ahead"),
        pytest.param([OWN, A, B, C, D], {OWN: 1, A: NOW, B: NOW, C: NOW, D: NOW}, [], id="never its own"),
        pytest.param([A, B, C, D, E], {A: 1, B: 2, C: 3, D: 4, E: 5}, [A], id="its own is not loaded"),
        pytest.param([OWN, A, B, C, "mine", "sb_mine"], {A: 1, "mine": 1, "sb_mine": 1}, [], id="others do not count"),
        pytest.param([OWN, A, B, C, D, "sb_mine"], {"sb_mine": 1, A: 2}, [A], id="nor are they deleted"),
    ],
)
def test_what_is_deleted(loaded: list[str], named: dict[str, int], deleted: list[str]) -> None:
    states = judge_libraries(loaded, NamedLibraries(NOW, named), OWN)
    assert [state.name for state in states if state.to_do == "delete"] == deleted


def test_each_library_of_a_release_is_listed_with_the_time_when_it_was_named() -> None:
    assert judge_libraries([B, "mine", OWN, A], NamedLibraries(NOW, {OWN: 5, A: 6, C: 7}), OWN) == [
        LibraryState(OWN, own=True, named_at=5, to_do=None),
        LibraryState(A, own=False, named_at=6, to_do=None),
        LibraryState(B, own=False, named_at=None, to_do=None),
    ]


def test_the_library_of_this_release_is_to_be_loaded_if_it_is_missing() -> None:
    assert judge_libraries([A], NamedLibraries(NOW, {}), OWN) == [
        LibraryState(OWN, own=True, named_at=None, to_do="load"),
        LibraryState(A, own=False, named_at=None, to_do=None),
    ]
