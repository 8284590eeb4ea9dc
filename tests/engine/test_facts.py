"""The facts of a script are in its header alone, and the engine exports what other rooms use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sbredis.engine
from sbredis.engine import NO_CALL_ID, Partition, PartitionSettings, SessionLock, every_script, new_token, preloaded
from sbredis.engine._contracts import Fact, contract
from sbredis.engine._expansion import ScriptFormatError
from sbredis.engine._lua_files import contract_of
from sbredis.engine._scripts import facts_of, facts_of_step, operations, with_fact
from tests.house.modules import Module, modules
from tests.offenders import for_each
from tools.repository import ROOT

OF_SCRIPTS = ("engine", "registry", "transport", "client")
"""The rooms that handle scripts by name."""
MANY = 3
"""From this number of names on, a list of scripts states a fact about them."""

OF = Partition("n", "abc", "e", "incarnation", 7, PartitionSettings(clock="test"))
SESSION = SessionLock("s", new_token())


def listed(tree: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """Yield the lists of operations in a module, with their lines; its list of exported names is none."""
    exported = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    for node in ast.walk(tree):
        if isinstance(node, (ast.Set, ast.List, ast.Tuple)) and node not in exported:
            texts = [each.value for each in node.elts if isinstance(each, ast.Constant)]
            found = [text for text in texts if isinstance(text, str) and text in operations()]
            if len(found) >= MANY:
                yield node.lineno, found


@pytest.mark.slow
@for_each("module", [each for each in modules() if each.folder in OF_SCRIPTS], ids=lambda each: each.name)
def test_python_lists_no_fact_of_scripts(module: Module) -> None:
    assert list(listed(module.tree)) == [], "state the fact in the headers, and ask for it with with_fact or facts_of"


@for_each("path", sorted((ROOT / "lua").rglob("*.lua")), ids=lambda path: path.stem)
def test_no_text_in_lua_lists_scripts(path: Path) -> None:
    code = re.sub(r"--.*", "", path.read_text("utf-8"))
    texts = [text.split() for text in re.findall(r"'([^'\n]*)'", code)]
    assert [text for text in texts if len(set(text) & set(operations())) >= MANY] == []


def test_a_list_of_scripts_is_found() -> None:
    source = "HARMLESS = {'peek', 'count', 'ripe'}\n__all__ = ['publish', 'ripe', 'send']\n"
    assert list(listed(ast.parse(source))) == [(1, ["peek", "count", "ripe"])]


@for_each("name", operations())
def test_a_script_has_at_most_one_flag(name: str) -> None:
    assert contract_of(name).flags in ((), ("allow-oom",), ("no-writes",))


@for_each("name", operations())
def test_a_fact_depends_only_on_an_argument_that_the_script_has(name: str) -> None:
    header = contract_of(name)
    assert {fact.argument for fact in header.facts.values()} <= {None, *header.arguments}


@for_each("name", operations())
def test_a_script_that_only_reads_can_be_repeated_and_is_no_use(name: str) -> None:
    header = contract_of(name)
    if "no-writes" in header.flags:
        assert header.fact("repeatable").always
        assert "use" not in header.facts


@for_each("name", operations())
def test_only_a_script_that_takes_in_data_has_a_second_form_for_a_full_server(name: str) -> None:
    header = contract_of(name)
    assert "at_limit" not in header.facts or header.flags == ()
    assert "freeing" not in header.facts or "at_limit" in header.facts


def test_a_request_has_the_facts_of_its_script() -> None:
    assert OF.peek(0, 1).repeatable
    assert not OF.cancel(NO_CALL_ID, ["1"]).repeatable
    assert not OF.receive_deferred(NO_CALL_ID, new_token(), ["1"]).repeatable
    assert not OF.accept_session(NO_CALL_ID, new_token(), "s").repeatable
    assert OF.set_state(NO_CALL_ID, SESSION, None).at_limit
    assert not OF.set_state(NO_CALL_ID, SESSION, b"").at_limit
    assert facts_of("complete").freeing.always


def test_a_step_of_a_transaction_has_the_facts_of_the_fragment_that_checks_it() -> None:
    freeing = {name for name in ("once", "advance", "transfer", "withdraw") if "freeing" in facts_of_step(name)}
    assert freeing == {"once", "withdraw"}


def test_the_first_scripts_of_a_client_only_read() -> None:
    assert {script.name for script in preloaded()} == set(with_fact("preloaded"))
    assert all(script.only_reads for script in preloaded())


def test_every_script_is_there_once() -> None:
    names = [script.name for script in every_script()]
    assert sorted(names) == sorted([*operations(), *with_fact("at_limit")])


HEAD = "#!lua\n-- Does.\n--\n-- ARGV[1] wanted\n--\n-- Result: 1\n-- Refusals: none\n"


def test_a_fact_may_depend_on_an_argument() -> None:
    header = contract(f"{HEAD}-- Facts: use, repeatable if wanted is 0,\n--   laneless\nreturn 1\n")
    assert header.facts == {
        "use": Fact(always=True),
        "repeatable": Fact(always=False, argument="wanted", value="0"),
        "laneless": Fact(always=True),
    }
    assert header.fact("repeatable").holds({"wanted": 0})
    assert not header.fact("repeatable").holds({"wanted": 1})
    assert not header.fact("repeatable").holds({})
    assert not header.fact("freeing").holds({"wanted": 0})


@pytest.mark.parametrize("text", ["", "none", "harmless", "use, use", "use repeatable", "repeatable if wanted", "use,"])
def test_the_error_for_a_malformed_line_of_facts_names_the_facts_that_there_are(text: str) -> None:
    with pytest.raises(
        ScriptFormatError, match=r"^line 8: expected different facts of use, repeatable, .*preloaded, sep"
    ):
        contract(f"{HEAD}-- Facts: {text}\nreturn 1\n")


# -- exports -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_engine_exports_exactly_what_other_rooms_import_from_it() -> None:
    used = {
        name.removeprefix("sbredis.engine.")
        for module in modules()
        if module.folder != "engine"
        for name in module.imports()
        if name.startswith("sbredis.engine.")
    }
    assert used == set(sbredis.engine.__all__), "another room imports a private module, or an export is not used"
