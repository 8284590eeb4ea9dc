"""Tests of the ways in which a query finds its connection string."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from sbredis.exceptions import SparkSetupError
from sbredis.spark._secrets import Server, refuse_memory, server_of, warn_of_password, warn_of_settings

URL = "redis://:hidden-word@bus:6379"


def provided() -> str:
    return URL


def provides_nothing() -> None:
    return None


def test_the_connection_string_comes_from_the_environment_a_file_or_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUS", URL)
    (tmp_path / "bus").write_text(URL + "\n", "utf-8")
    for given in ({"urlEnv": "BUS"}, {"urlfile": str(tmp_path / "bus")}, {"urlProvider": f"{__name__}:provided"}):
        assert server_of({**given, "namespace": "shop"}) == Server(URL, "shop")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_password(given)


def test_a_server_does_not_show_its_password() -> None:
    assert "hidden-word" not in repr(Server(URL, None))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"urlEnv": "NO_SUCH_VARIABLE"}, "which is not set in this process. The driver and every executor need it"),
        ({"urlFile": "/no/such/file"}, "which this process cannot read"),
        ({"urlProvider": "no_such_module:function"}, "must be MODULE:FUNCTION"),
        ({"urlProvider": "nothing"}, "must be MODULE:FUNCTION"),
        ({"urlProvider": f"{__name__}:provides_nothing"}, "returned no connection string"),
    ],
)
def test_a_connection_string_that_is_not_there_is_named(given: dict[str, str], text: str) -> None:
    with pytest.raises(SparkSetupError, match=text):
        server_of(given)


def test_a_password_in_the_option_url_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="Spark writes into its event log") as caught:
        warn_of_password({"url": URL})
    assert "hidden-word" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_password({"url": "redis://bus:6379"})


@pytest.mark.parametrize("name", ["spark.executorEnv.BUS", "spark.yarn.appMasterEnv.BUS"])
def test_a_password_in_a_setting_that_spark_does_not_hide_is_a_warning(name: str) -> None:
    with pytest.warns(
        UserWarning, match=f"{name} contains a password, which Spark writes into its event log"
    ) as caught:
        warn_of_settings({"spark.app.name": "report", name: URL})
    assert "hidden-word" not in str(caught[0].message)


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.executorEnv.SBREDIS_SECRET_URL": URL},
        {"spark.executorEnv.BUS": "redis://bus:6379"},
        {"spark.executorEnv.BUS": "redis+sentinel://bus?sentinel_password=hidden-word"},
        {"spark.redaction.regex": "BUS", "spark.executorEnv.BUS": URL},
        {"spark.redaction.regex": "(?<a>x", "spark.executorEnv.BUS_TOKEN": URL},
        {"spark.other": URL},
    ],
)
def test_a_setting_that_spark_hides_or_that_has_no_password_is_no_warning(settings: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_settings(settings)


def test_a_server_in_memory_is_refused_because_each_process_has_its_own() -> None:
    refuse_memory(Server("embedded:///data", None))
    with pytest.raises(SparkSetupError, match=r"Spark cannot use a server in memory .*use embedded:///FOLDER"):
        refuse_memory(Server("memory://orders", None))


def test_a_wrong_namespace_is_refused() -> None:
    with pytest.raises(SparkSetupError, match=r"The option namespace is wrong: .*letters, digits"):
        server_of({"url": URL, "namespace": "bad ns!"})


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bus").write_bytes(URL.encode("utf-16"))
    with pytest.raises(SparkSetupError, match=r"The option urlFile names .*, which is not text in UTF-8"):
        server_of({"urlFile": str(tmp_path / "bus")})
