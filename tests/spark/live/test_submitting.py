"""The wheel in ``spark-submit --py-files``, on machines whose Python has what sbredis needs, but not sbredis."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pyspark
import pytest

from sbredis.exceptions import SparkSetupError
from sbredis.servers import LocalServer
from sbredis.spark import require_java
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.house.building import WHEEL, build
from tests.spark.live.reading import send
from tests.spark.live.test_ways_to_run import PATIENCE

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout. Its name ends with ``.zip``, because Spark takes no others for packages."""
    made = build(tmp_path_factory.mktemp("dist")) / WHEEL
    return made.rename(made.with_suffix(".zip"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the packages of the tests, but without sbredis."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    found = folder / "bin" / "python"
    line = [str(found), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip())
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if "sbredis" not in each.name and each.suffix != ".pth" and not (packages / each.name).exists():
            (packages / each.name).symlink_to(each)
    return found


@pytest.mark.long("it starts a Spark of its own")
@pytest.mark.parametrize("on_path", [False, True], ids=["sent", "sent and on the path of the driver"])
def test_the_wheel_is_sent_with_a_program(
    server: LocalServer, wheel: Path, python: Path, tmp_path: Path, *, on_path: bool
) -> None:
    """Batches work. A stream works only if the process that plans it finds the wheel too."""
    try:
        require_java()
    except SparkSetupError as missing:
        pytest.skip(str(missing))
    send(server.url, "submitted", [])
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SBREDIS", "PYTHONPATH"))},
        "PYSPARK_PYTHON": str(python),
        "SBREDIS_SECRET_URL": server.url,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **({"PYTHONPATH": str(wheel)} if on_path else {}),
    }
    options = ["--master", "local[2]", "--py-files", str(wheel), "--conf", "spark.ui.enabled=false"]
    done = subprocess.run(
        [str(SUBMIT), *options, str(Path(__file__).parent / "submitted.py"), str(tmp_path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert "seen 100" in done.stdout, done.stdout + done.stderr[-4000:]
    if on_path:
        assert "taken 100" in done.stdout, done.stdout + done.stderr[-4000:]
    else:
        assert "no stream:" in done.stdout
        assert "No module named 'sbredis'" in done.stdout
    with ServiceBusAdministrationClient.from_connection_string(server.url) as administration:
        left = administration.get_queue_runtime_properties("submitted").active_message_count
        assert left == (0 if on_path else 100)
        assert [each.path for each in administration.list_reservations()] == (["submitted"] if on_path else [])
