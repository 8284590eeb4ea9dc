"""Set-up for the tests of the client's decision code."""

import pytest


@pytest.fixture(autouse=True)
def patient() -> None:
    """Leave the time limits unchanged. These tests pass in all times, so they do not depend on the speed of the
    machine.
    """
