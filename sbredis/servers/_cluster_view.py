"""The view that a node has of its cluster: the parsed answer to CLUSTER NODES. Nothing here asks a server."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["NodeView", "parse_nodes", "roles_of"]

SLOTS = 16_384


@dataclass(frozen=True)
class NodeView:
    """One line of CLUSTER NODES: a node as the answering node sees it."""

    id: str
    flags: frozenset[str]
    master_id: str | None
    config_epoch: int
    link_is_up: bool
    slots: tuple[range, ...]

    @property
    def is_myself(self) -> bool:
        """Whether this is the answering node itself."""
        return "myself" in self.flags

    @property
    def is_master(self) -> bool:
        """Whether it is a master, with slots or without."""
        return "master" in self.flags

    @property
    def is_failing(self) -> bool:
        """Whether the node is suspected of a failure, or known to have failed."""
        return bool(self.flags & {"fail", "fail?"})

    def owns(self, slot: int) -> bool:
        """Whether the node owns the slot."""
        return any(slot in slots for slots in self.slots)


def parse_nodes(text: str) -> list[NodeView]:
    """Parse the answer to CLUSTER NODES. A slot that is being moved still belongs to its present owner."""
    return [_parse_line(line) for line in text.splitlines() if line.strip()]


def _parse_line(line: str) -> NodeView:
    node_id, _address, flags, master, _ping, _pong, epoch, link, *slots = line.split()
    return NodeView(
        id=node_id,
        flags=frozenset(flags.split(",")),
        master_id=None if master == "-" else master,
        config_epoch=int(epoch),
        link_is_up=link == "connected",
        slots=tuple(_parse_slots(part) for part in slots if not part.startswith("[")),
    )


def _parse_slots(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def roles_of(views: list[NodeView], alive: Collection[str]) -> dict[str, tuple[str | None, frozenset[range]]]:
    """Return the master and the slots of each live node and of each owner of slots, in a form in which two nodes'
    answers can be compared.
    """
    return {view.id: (view.master_id, frozenset(view.slots)) for view in views if view.slots or view.id in alive}
