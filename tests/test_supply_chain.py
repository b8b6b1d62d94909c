"""What is installed: by hash, little, under permissive licences, and listed (E3, E4, E6)."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SBOM = runpy.run_path(str(ROOT / "requirements" / "sbom.py"))
PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)

PERMISSIVE = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0",
    "CNRI-Python", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Zlib",
}  # fmt: skip
EXCEPTIONS = {
    "tqdm": "MPL-2.0 AND MIT"
}  # of huggingface-hub, of tokenizers: docs/decisions/0019-locked-requirements.md
DEVICE_LIBRARIES = ("cuda-", "nvidia-", "triton")  # of the builds of torch for graphics cards


def pinned(file):
    """The versions in a file of requirements, by name."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return {canonicalize_name(name): version for name, version in PINNED.findall(text)}


def declared(*extras):
    """The names that pyproject.toml requires."""
    project = PROJECT["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def installed(*extras):
    """The distributions that Dragoman runs with on this machine, by name."""
    found = {}
    for name in SBOM["requirements_of"]("dragoman", extras):
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            assert name not in SBOM["requirements_of"]("dragoman"), f"{name} is required, and not installed"
    return {name: package for name, package in found.items() if not name.startswith(DEVICE_LIBRARIES)}


def test_everything_that_the_tests_install_is_locked_at_the_version_of_the_constraints():
    locked, constraints = pinned("requirements/test.txt"), pinned("constraints.txt")
    building = {canonicalize_name(Requirement(line).name) for line in PROJECT["build-system"]["requires"]}
    assert (declared("dev") | building) - {"torch"} <= locked.keys()
    assert pinned("requirements/torch.txt") == {"torch": constraints["torch"]}
    assert {name: version for name, version in locked.items() if constraints.get(name, version) != version} == {}


@pytest.mark.parametrize("name", ["test.txt", "torch.txt", "tools.txt"])
def test_a_lock_file_has_names_versions_and_hashes_and_nothing_else(name):
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    entries = re.split(r"\n(?! )", "\n".join(lines))
    entry = re.compile(r"[\w.-]+==[\w.+!]+( ; [^\\/]+)? \\(\n {4}--hash=sha256:[0-9a-f]{64}( \\)?)+")
    assert [found for found in entries if not entry.fullmatch(found)] == []


def test_the_packages_that_dragoman_runs_with_are_few():
    """Whoever adds one raises the number on purpose, and writes into docs/decisions/0001-dependencies.md why."""
    assert len(declared()) == 12
    assert len(declared("audio", "bench", "notebook", "serve")) == 12 + 8
    assert len(installed()) - 1 <= 56


def test_the_licences_of_what_dragoman_runs_with_are_permissive():
    licences = {name: SBOM["licence"](package) for name, package in installed(*SBOM["EXTRAS"]).items()}
    others = {
        name: text
        for name, text in licences.items()
        if not set(re.split(r" (?:AND|OR) ", text)) <= PERMISSIVE and EXCEPTIONS.get(name) != text
    }
    assert others == {}


def test_the_bill_of_materials_lists_everything_once_and_is_the_same_when_written_again():
    bill = SBOM["bill_of_materials"]()
    components = {component["name"]: component for component in bill["components"]}
    references = {part["bom-ref"] for part in [bill["metadata"]["component"], *bill["components"]]}
    assert declared() <= components.keys()
    assert len(components) == len(bill["components"])
    assert {name for name in declared() if components[name]["scope"] != "required"} == set()
    assert components["uvicorn"]["scope"] == "optional"
    assert {part for entry in bill["dependencies"] for part in [entry["ref"], *entry["dependsOn"]]} == references
    assert SBOM["bill_of_materials"]() == bill


@pytest.mark.parametrize(
    "packages, code, said",
    [
        ('{"name": "a", "skip_reason": "not found"}', 0, "nothing audited"),
        ('{"name": "a", "version": "1", "vulns": []}', 0, "3 packages audited, 0 with known vulnerabilities"),
        (
            '{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}',
            1,
            "a 1: CVE-1, fixed in 2",
        ),
    ],
)
def test_an_audit_fails_for_vulnerabilities_and_says_if_nothing_was_audited(packages, code, said, tmp_path):
    """Stands in for pip-audit, which exits with 0 and "no known vulnerabilities found" if it has found no package."""
    (tmp_path / "pip_audit.py").write_text(f"print('{{\"dependencies\": [{packages}]}}')")
    result = subprocess.run(
        [sys.executable, ROOT / "requirements" / "audit.py"], env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (result.returncode, said in result.stdout) == (code, True)


def test_the_workflow_runs_what_is_run_here_and_npm_runs_no_scripts_of_packages():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "run: .ci/run" in (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert script.count("npm install") == script.count("--ignore-scripts") == 1
