"""Errors, as they travel between processes and tasks."""

from __future__ import annotations

import copy
import pickle

from sbredis.exceptions import ScriptRefusedError


def test_an_error_can_be_copied_and_pickled() -> None:
    error = ScriptRefusedError("CODE", "detail", after_unknown=True)
    error.entity = "orders"
    for made in (copy.copy(error), pickle.loads(pickle.dumps(error)), error.twin()):  # noqa: S301  # our own
        assert type(made) is ScriptRefusedError
        assert (str(made), made.code, made.after_unknown, made.entity) == (str(error), "CODE", True, "orders")
