"""Set-up for the tests of the client's decisions."""

import pytest


@pytest.fixture(autouse=True)
def patient() -> None:
    """Leave the time limits as they are: these tests pass all times in, so they do not depend on the machine."""
