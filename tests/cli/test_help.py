"""The help of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from sbredis.cli._app import PARTS, program


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, f"{path}{name}"
        if isinstance(found, click.Group):
            yield from commands(found, f"{path}{name} ")
        else:
            yield f"{path}{name}", found


EVERY = dict(commands(program))


@pytest.mark.parametrize("path", EVERY)
def test_a_command_has_help_with_an_example_that_names_it(path: str) -> None:
    found = EVERY[path]
    help_page = found.get_help(click.Context(found))
    assert (found.help or "").strip(), "the help says nothing"
    assert f"  sbredis {path}" in help_page
    assert all(parameter.help for parameter in found.params if isinstance(parameter, click.Option)), help_page


@pytest.mark.parametrize("name", PARTS)
def test_the_line_in_the_list_of_commands_is_the_first_of_the_help(name: str) -> None:
    found = program.get_command(click.Context(program), name)
    assert found is not None
    assert (found.help or "").split("\n")[0] == PARTS[name][1]
