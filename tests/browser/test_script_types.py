"""The pages' scripts are plain JavaScript with types in their comments; TypeScript holds them to it."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dragoman"
TSC = shutil.which("tsc") or shutil.which("tsc", path=ROOT / ".venv/node/node_modules/.bin")
STRICT = "--noEmit --allowJs --checkJs --strict --noUncheckedIndexedAccess --skipLibCheck"
BROWSER = "--target es2022 --module es2022 --moduleResolution bundler --lib es2023,dom,dom.iterable"

FOLDERS = ("server/page", "viewer/static", "watch/page")


@pytest.mark.skipif(not TSC, reason="needs tsc: npm install --prefix .venv/node typescript")
def test_the_scripts_are_typed_strictly():
    scripts = [str(script) for folder in FOLDERS for script in sorted((SOURCE / folder).glob("*.js"))]
    command = [str(TSC), *STRICT.split(), *BROWSER.split(), *scripts]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert checked.returncode == 0, checked.stdout
