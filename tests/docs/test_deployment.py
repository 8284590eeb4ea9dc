"""The rights on the page about deployment are those that the command prints."""

from __future__ import annotations

import re

import pytest

from sbredis.cli import main
from tools.repository import ROOT

PAGE = (ROOT / "docs" / "deployment.md").read_text("utf-8")


def test_the_page_shows_the_rights_that_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    shown = re.search(r"^ACL SETUSER orders .*$", PAGE, re.MULTILINE)
    assert main(["acl", "namespace", "orders"]) == 0
    assert shown is not None
    assert shown[0] == capsys.readouterr().out.rstrip("\n")
