"""Write the software bill of materials of an installed Dragoman, as CycloneDX JSON: what it runs with, and under which
licences.

Run it with `make sbom`. The same installation always gives the same bytes: no time, no random serial number.
"""

import json
import sys
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("audio", "bench", "notebook", "serve")
# Packages without a License-Expression name their licence in a classifier or in a free text.
_SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}


def requirements_of(name: str, extras: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """Return the names that a package requires on this machine, and all that these require, each with its own ones."""
    graph: dict[str, set[str]] = {}
    pending, seen = [(name, extra) for extra in ("", *extras)], set()
    while pending:
        package, extra = pending.pop()
        if (package, extra) in seen:
            continue
        seen.add((package, extra))
        graph.setdefault(package, set())
        for requirement in map(Requirement, _requires(package)):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                required = canonicalize_name(requirement.name)
                graph[package].add(required)
                pending += [(required, wanted) for wanted in ("", *requirement.extras)]
    return graph


def _requires(package: str) -> list[str]:
    try:
        return distribution(package).requires or []
    except PackageNotFoundError:  # of an extra that is not installed
        return []


def licence(package: Distribution) -> str:
    """Return a package's licence as an SPDX expression where its metadata has one, otherwise in its own words."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier") or [] if "License ::" in text]
    if classifiers:
        return " AND ".join(_SPDX.get(text, text) for text in classifiers)
    first_line = (metadata.get("License") or "unknown").splitlines()[0]
    return _SPDX.get(first_line, first_line)


def _purl(package: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(package.name)}@{quote(package.version)}"


def _component(package: Distribution, kind: str, scope: str) -> dict[str, Any]:
    reference = _purl(package)
    return {
        "type": kind,
        "bom-ref": reference,
        "name": canonicalize_name(package.name),
        "version": package.version,
        "scope": scope,
        "licenses": [{"expression": licence(package)}],
        "purl": reference,
    }


def bill_of_materials(name: str = "dragoman") -> dict[str, Any]:
    """Return the bill of materials; what only an extra requires has the scope `optional`."""
    required, graph = requirements_of(name), requirements_of(name, EXTRAS)
    installed: dict[str, Distribution] = {}
    for package in sorted(graph):
        try:
            installed[package] = distribution(package)
        except PackageNotFoundError:
            continue
    subject = _component(installed[name], "application", "required")
    components = [
        _component(package, "library", "required" if key in required else "optional")
        for key, package in installed.items()
        if key != name
    ]
    dependencies = [
        {"ref": _purl(package), "dependsOn": [_purl(installed[part]) for part in sorted(graph[key] & installed.keys())]}
        for key, package in installed.items()
    ]
    identity = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([subject, components]))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{identity}",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": dependencies,
    }


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill_of_materials(), indent=2) + "\n", encoding="utf-8")
    print(f"Wrote {target}.")
