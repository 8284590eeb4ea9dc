"""The planted bugs are up to date with the code and the tests; a long run shows that each of them is found."""

from __future__ import annotations

import ast

from tests.aio.planted import PLANTED, ROOT, Planted, text_with
from tests.offenders import for_each


@for_each("bug", PLANTED, ids=lambda bug: bug.name)
def test_each_planted_bug_is_unique_and_changes_a_module_and_has_a_test(bug: Planted) -> None:
    ast.parse(text_with(bug))
    file, _, name = bug.test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
    assert [one.name for one in PLANTED].count(bug.name) == 1
