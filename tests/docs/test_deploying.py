"""Tests that the files of the page about deploying can be read, and name commands and variables that exist."""

from __future__ import annotations

import configparser
import re
import shlex
from typing import Any

import pytest
import yaml

from sbredis.workers.declaring._worker_options import WorkerSettings
from sbredis.workers.supervising._commands import read_command
from tools.repository import ROOT

PAGE = (ROOT / "docs/deploying.md").read_text("utf-8")
COMPOSE, KUBERNETES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(UNIT,) = re.findall(r"^```ini\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
WORKER = ["-m", "sbredis.workers", "shop:worker"]


def container() -> dict[str, Any]:
    _, deployment = yaml.safe_load_all(KUBERNETES)
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT)
    return parser["Service"]


@pytest.mark.parametrize(
    "command",
    [shlex.split(yaml.safe_load(COMPOSE)["services"]["worker"]["command"]), container()["command"],
     shlex.split(unit()["ExecStart"])],
    ids=["compose", "kubernetes", "systemd"],
)  # fmt: skip
def test_each_way_starts_the_worker_with_options_that_exist(command: list[str]) -> None:
    assert command[1:4] == WORKER
    assert read_command(command[3:]).target == "shop:worker"


def test_each_way_gives_the_worker_more_time_than_it_takes_to_stop() -> None:
    given = [
        int(yaml.safe_load(COMPOSE)["services"]["worker"]["stop_grace_period"].removesuffix("s")),
        [*yaml.safe_load_all(KUBERNETES)][1]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"],
        int(unit()["TimeoutStopSec"]),
    ]
    assert min(given) > WorkerSettings().shutdown_timeout
    assert f"{WorkerSettings().shutdown_timeout:g} seconds by default" in PAGE


def test_each_way_names_the_server_by_the_variable() -> None:
    assert yaml.safe_load(COMPOSE)["services"]["worker"]["environment"] == {"SBREDIS_URL": "redis://bus"}
    assert [each["name"] for each in container()["env"]] == ["SBREDIS_URL"]
    assert "SBREDIS_URL=" in PAGE
    assert unit()["RestartPreventExitStatus"] == "2"
