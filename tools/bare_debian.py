"""Run ``make demo`` and ``make test`` in a bare Debian: ``python -m tools.bare_debian`` (``make test-bare``).

A developer's machine has programs that the README does not ask for. So this tool makes a Debian that has only git,
make, python3 and pip, copies the checkout into it, and runs both commands there as the README says. It runs the tests
that start programs; ``--whole`` runs all tests, and names of tests run only those. ``--keep`` keeps the Debian in
``.cache/bare-debian/root``.

It needs root on a Debian with debootstrap. debootstrap and pip fetch their packages from where apt and pip of this
machine fetch theirs. On a machine that cannot do it, the tool says why, and ends with success.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tools.repository import ROOT, candidates

FOLDER = ROOT / ".cache/bare-debian"
PROGRAMS = ("git", "make", "python3", "python3-pip")
"""The packages that the README asks for, which are all that is installed besides what every Debian has."""

HOME = "/reader"
PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PART = (
    "tests/house/test_commands.py",
    "tests/house/test_extras.py",
    "tests/house/test_packaging.py",
    "tests/servers/test_embedded.py",
    "tests/servers/test_embedded_faults.py",
    "tests/transport/test_tls.py",
    "tests/cli/test_moving.py",
    "tests/cli/test_programs.py",
    "tests/cli/test_receive.py",
    "tests/cli/test_running.py",
    "tests/docs/test_runbook.py",
    "tests/docs/test_tutorial.py",
    "tests/examples/test_examples.py",
    "tests/spark/live/test_endings.py",
)
"""The tests that start programs of the system, and those that look at processes."""

HANDED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
PIP = ("PIP_INDEX_URL", "PIP_PROXY", "PIP_TRUSTED_HOST", "PIP_TIMEOUT")
"""The variables that tell pip how it reaches its index."""

ENTER = """\
set -e
mount --bind "$1/proc" "$1/proc" && mount -t proc proc "$1/proc"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
root=$1
shift
status=0
chroot "$root" "$@" || status=$?  # this shell stays, and waits for the processes that lose their parent
exit "$status"
"""


class Unable(Exception):  # noqa: N818 - it is a fact about the machine
    """The reason for which this machine cannot make a bare Debian."""


def mirror_of(targets: str, codename: str) -> str:
    """Return the address from which apt gets the main packages of a release, from its list of indexes."""
    for line in targets.splitlines():
        site, _, rest = line.partition(" ")
        if rest.split() == [codename, "main"]:
            return site
    raise Unable(f"apt is not set up for the packages of {codename or 'a Debian that has a name'}")


def settings_of_pip(listed: str) -> dict[str, str]:
    """Return the variables that tell pip how it reaches its index, from the output of ``pip config list``.

    A setting of the environment, which pip lists last, overrides one of a file.
    """
    found: dict[str, str] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        variable = f"PIP_{name.removeprefix(':env:.').removeprefix('global.').upper().replace('-', '_')}"
        if variable in PIP:
            found[variable] = value.strip("'\"")
    return found


def settings_of_apt(dumped: str) -> Iterator[str]:
    """Yield the lines of ``apt-config dump`` that say how apt reaches its servers."""
    wanted = ("Acquire::http::", "Acquire::https::", "Acquire::Retries ", "Acquire::Check-Valid-Until ")
    yield from (line for line in dumped.splitlines() if line.startswith(wanted))


def commands(tests: Iterable[str] | None) -> list[str]:
    """Return the commands to run; ``None`` stands for all tests."""
    if tests is None:
        return ["make demo", "make test-all"]
    part = shlex.quote(" ".join(tests))
    return ["make demo", f"make test TESTS={part} ARGS='-v -p no:cacheprovider -n 3 --dist worksteal'"]


def output(*command: str) -> str:
    """Return what a program of this machine prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def check(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the release and the mirror to make the Debian from.

    Raises: Unable if this machine cannot make one.
    """
    if not sys.platform.startswith("linux"):
        raise Unable("it needs Linux")
    if os.geteuid() != 0:
        raise Unable("it needs root")
    for program in ("apt-get", "debootstrap", "unshare", "chroot", "mount"):
        if shutil.which(program, path=environment["PATH"]) is None:
            raise Unable(f"there is no {program} (on Debian: apt-get install debootstrap util-linux)")
    namespaces = ["unshare", "--mount", "--pid", "--fork", "true"]
    if subprocess.run(namespaces, check=False, capture_output=True).returncode:
        raise Unable("this machine does not allow namespaces of mounts and processes")
    facts = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text("utf-8").splitlines() if "=" in line)
    codename = facts.get("VERSION_CODENAME", "").strip('"')
    listed = output("apt-get", "indextargets", "--format", "$(SITE) $(CODENAME) $(COMPONENT)", "Created-By: Packages")
    return codename, mirror_of(listed, codename)


def bootstrap(root: Path, codename: str, mirror: str) -> None:
    """Install the Debian, and set up its apt, its certificates and its names of hosts."""
    packages, log = FOLDER / "packages", FOLDER / "log"
    packages.mkdir(exist_ok=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PROGRAMS)}", f"--cache-dir={packages}"]
    with log.open("wb") as file:
        done = subprocess.run([*command, codename, str(root), mirror], stdout=file, stderr=file, check=False)
    if done.returncode:
        last = log.read_text("utf-8", "replace").strip().splitlines()[-3:]
        raise Unable(f"debootstrap failed: {' / '.join(last)}")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / HOME.lstrip("/")).mkdir()
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n", "utf-8")
    lines = settings_of_apt(output("apt-config", "dump"))
    (root / "etc/apt/apt.conf.d/90outside").write_text("\n".join(lines) + "\n", "utf-8")
    certificates = ssl.get_default_verify_paths().cafile
    if certificates is not None:
        shutil.copy(certificates, root / "etc/ssl/certs/ca-certificates.crt")


def check_out(target: Path) -> None:
    """Copy the files of the checkout, and a wheel of PySpark if one is there, and make a repository of them."""
    for path in candidates():
        if path.is_file():
            copy = target / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
    for link in (Path("sbredis/lua"), Path("sbredis/workers")):
        (target / link).symlink_to((ROOT / link).readlink())
    for wheel in (ROOT / ".cache/wheels").glob("*.whl"):
        (target / ".cache/wheels").mkdir(parents=True, exist_ok=True)
        shutil.copy2(wheel, target / ".cache/wheels")
    for step in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *step], cwd=target, check=True, capture_output=True)  # noqa: S607 - git is where PATH says


def enter(root: Path, line: str, variables: Mapping[str, str]) -> int:
    """Run a line of shell in the checkout of the bare Debian. Return its status.

    All its processes are in a namespace of their own, which ends with the line.
    """
    named = [f"{name}={value}" for name, value in {"HOME": HOME, "PATH": PATHS, **variables}.items()]
    inside = ["env", "-i", *named, "sh", "-c", f"cd /checkout && {line}"]
    outside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "enter", str(root)]
    return subprocess.run([*outside, *inside], check=False, stdin=subprocess.DEVNULL).returncode


def main(arguments: list[str]) -> int:
    """Make the Debian, run the commands in it, and say which passed."""
    parser = argparse.ArgumentParser(prog="python -m tools.bare_debian", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("tests", nargs="*", default=PART, help="the tests to run (default: those that start programs)")
    parser.add_argument("--whole", action="store_true", help="run all tests")
    parser.add_argument("--keep", action="store_true", help="keep the Debian in .cache/bare-debian/root")
    asked = parser.parse_args(arguments)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    try:
        codename, mirror = check(os.environ)
    except Unable as reason:
        return skip(reason)
    root = FOLDER / "root"
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    print(f"making a bare Debian ({codename}) with {', '.join(PROGRAMS)}; this takes some minutes", flush=True)
    try:
        bootstrap(root, codename, mirror)
        return run_in(root, commands(None if asked.whole else asked.tests))
    except Unable as reason:
        return skip(reason)
    finally:
        if not asked.keep:
            shutil.rmtree(root, ignore_errors=True)


def skip(reason: Unable) -> int:
    """Say why the run is skipped, and return the status of a success."""
    print(f"skipped: the run in a bare Debian: {reason}")
    return 0


def run_in(root: Path, lines: Iterable[str]) -> int:
    """Run the commands in the bare Debian, say which passed, and return the status of the whole."""
    check_out(root / "checkout")
    handed_on = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    variables = handed_on | settings_of_pip(output(sys.executable, "-m", "pip", "config", "list"))
    failed = False
    results: list[str] = []
    for line in lines:
        print(f"--- in the bare Debian: {line}", flush=True)
        started = time.monotonic()
        status = enter(root, line, variables)
        failed = failed or status != 0
        verdict = "passed" if status == 0 else f"FAILED with status {status}"
        results.append(f"{verdict} in {time.monotonic() - started:.0f} s: {line}")
    print("\n".join(["--- in the bare Debian", *results]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
