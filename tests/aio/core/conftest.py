"""Set-up for the tests of the client's decision code."""

import pytest


@pytest.fixture(autouse=True)
def patient() -> None:
    """Leave the time limits unchanged. These tests pass every time to the code as an argument, so they do not depend on
    the speed of the machine.
    """
