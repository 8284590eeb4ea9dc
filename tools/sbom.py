"""The bill of materials (SBOM) of a wheel, in the form of CycloneDX: ``python -m tools.sbom WHEEL``.

It lists the packages that the wheel needs, with its extras, and the packages that these need. Their versions and hashes
are those of the locks, with which the release was tested. So it needs no network, and a wheel always has the same bill.
``make dist`` writes it beside the wheel.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.metadata import Metadata
from packaging.utils import canonicalize_name

from tools.lock import Locked, lock_of, read_lock

__all__ = ["bill", "installed_by_users", "write_bill"]

LOCKS = ("requirements/demo.txt", "requirements/test.txt", "requirements/spark.txt")
"""The files of requirements whose locks have all dependencies of sbredis and of its extras."""

NEEDED_BY_SOURCES = {"pyspark": {"py4j"}}
"""What the packages need that have no wheels: a lock does not know it."""

Bill = dict[str, Any]


def installed_by_users() -> dict[str, Locked]:
    """Return the packages of the locks that can be dependencies of a wheel, by name."""
    return {
        name: package
        for requirements in reversed(LOCKS)
        for name, package in read_lock(lock_of(requirements).read_text("utf-8")).items()
    }


def needs(locked: Mapping[str, Locked], name: str) -> set[str]:
    """Return the packages that a package of the locks needs."""
    noted = {each.name for each in locked.values() if name in each.needed_by}
    return noted | set(locked[name].also_needs) | NEEDED_BY_SOURCES.get(name, set())


def reachable(locked: Mapping[str, Locked], names: set[str]) -> set[str]:
    """Return these packages, and all that they need."""
    found, open_ = set[str](), set(names)
    while open_:
        found |= open_
        open_ = {need for name in open_ for need in needs(locked, name)} - found
    return found


def address(name: str, version: object) -> str:
    """Return the package URL of a version of a package."""
    return f"pkg:pypi/{name}@{version}"


def component(package: Locked, scope: str, extras: set[str]) -> Bill:
    """Describe one package that the wheel needs."""
    purl = address(package.name, package.version)
    described: Bill = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": str(package.version),
        "scope": scope,
        "purl": purl,
        "externalReferences": [
            {
                "type": "distribution",
                "url": purl,
                "comment": "the hashes of all files of this version that may be installed",
                "hashes": [{"alg": "SHA-256", "content": hash_} for hash_ in sorted(package.hashes)],
            }
        ],
    }
    properties = [{"name": "sbredis:extra", "value": extra} for extra in sorted(extras)]
    if package.marker:
        properties.append({"name": "sbredis:marker", "value": package.marker})
    return {**described, "properties": properties} if properties else described


def wheel_metadata(wheel: Path) -> Metadata:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Metadata.from_email(archive.read(name))


def bill(wheel: Path, locked: Mapping[str, Locked]) -> Bill:
    """Return the bill of materials of a wheel.

    A package that only an extra needs is optional, and has the name of the extra if the wheel itself names it there.
    """
    metadata, digest = wheel_metadata(wheel), hashlib.sha256(wheel.read_bytes()).hexdigest()
    wanted: dict[str, set[str]] = {}
    for requirement in metadata.requires_dist or []:
        marker = str(requirement.marker or "")
        extras = {extra for extra in metadata.provides_extra or [] if f'extra == "{extra}"' in marker}
        wanted.setdefault(canonicalize_name(requirement.name), set()).update(extras or {""})
    required = reachable(locked, {name for name, extras in wanted.items() if "" in extras})
    listed = sorted(reachable(locked, set(wanted)))
    own = address(metadata.name, metadata.version)
    refs = {name: address(name, locked[name].version) for name in listed}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + '#' + digest)}",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": metadata.name,
                "version": str(metadata.version),
                "description": metadata.summary,
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "licenses": [{"expression": str(metadata.license_expression)}],
                "purl": own,
            },
        },
        "components": [
            component(locked[name], "required" if name in required else "optional", wanted.get(name, set()) - {""})
            for name in listed
        ],
        "dependencies": [
            {"ref": own, "dependsOn": sorted(refs[name] for name in wanted)},
            *({"ref": refs[name], "dependsOn": sorted(refs[need] for need in needs(locked, name))} for name in listed),
        ],
    }


def write_bill(wheel: Path, locked: Mapping[str, Locked]) -> Path:
    """Write the bill of materials of a wheel beside it, and return its path."""
    path = wheel.with_name("-".join(wheel.name.split("-")[:2]) + ".cdx.json")
    path.write_text(json.dumps(bill(wheel, locked), indent=2) + "\n", "utf-8")
    return path


if __name__ == "__main__":
    print(write_bill(Path(sys.argv[1]), installed_by_users()))
