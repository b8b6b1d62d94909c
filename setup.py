"""Compile the C files of src/dragoman/native when the package is built; pyproject.toml has everything else.

Each group of instruction sets becomes a shared library in dragoman/native/libraries, from which `dragoman.kernels`
chooses at run time. The libraries call nothing of Python, so that one wheel serves all its versions. Without a working
compiler the package has no libraries, and PyTorch computes the same more slowly.
"""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from setuptools import Command, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "src"))
from dragoman.kernels import LIST_NAME, source_digest  # noqa: E402

os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")  # a wheel that is built twice has the same bytes

SOURCES = ROOT / "src/dragoman/native"
COMPILE_SECONDS = 600
FLAGS = ("-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
LINUX_FLAGS = ("-Wl,--build-id=none", "-s")


class Variant(NamedTuple):
    """A library: the machine and the instruction sets that it is for."""

    name: str
    machine: str
    flags: tuple[str, ...]
    needs: tuple[str, ...]  # names in /proc/cpuinfo


V3 = ("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
V4 = (*V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
WIDE = ("-march=x86-64-v4", "-mprefer-vector-width=512")
VARIANTS = (  # of each machine the fastest first
    Variant("x86-64-v4-vnni", "x86_64", (*WIDE, "-mavx512vnni"), (*V4, "avx512_vnni")),
    Variant("x86-64-v4", "x86_64", WIDE, V4),
    Variant("x86-64-v3", "x86_64", ("-march=x86-64-v3",), V3),
    Variant("armv8.2-dotprod", "aarch64", ("-march=armv8.2-a+dotprod",), ("asimd", "asimddp")),
    Variant("armv8", "aarch64", ("-march=armv8-a",), ("asimd",)),
)


def find_compiler() -> list[str] | None:
    """Return the command of CC, or else the first C compiler on the path."""
    if command := shlex.split(os.environ.get("CC", "")):
        return command
    return next(([path] for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


def target_variants() -> list[Variant]:
    """Return the variants for the machine that the package is built for."""
    system, _, machine = sysconfig.get_platform().rpartition("-")
    machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine)
    return [variant for variant in VARIANTS if variant.machine == machine and not system.startswith("win")]


def compile_library(compiler: list[str], variant: Variant, path: Path) -> str | None:
    """Compile all C files into one library; return None, or why this failed."""
    files = sorted(file.name for file in SOURCES.glob("*.c"))  # relative names, so that no path gets into the library
    flags = (*FLAGS, *variant.flags, *(LINUX_FLAGS if sys.platform == "linux" else ()))
    command = [*compiler, *flags, "-o", str(path), *files, "-lm"]
    try:
        finished = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=COMPILE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if finished.returncode or not path.is_file():
        return f"{shlex.join(command)} failed: {finished.stderr.strip()[-2000:]}"
    path.chmod(0o755)
    return None


def compiler_version(compiler: list[str]) -> str:
    """Return the first line of what the compiler says about itself."""
    finished = subprocess.run([*compiler, "--version"], capture_output=True, text=True, timeout=COMPILE_SECONDS)
    return finished.stdout.partition("\n")[0]


class build_kernels(Command):  # noqa: N801
    """Compile the kernels; with --inplace, into src."""

    description = "compile the C files of dragoman/native"
    user_options = [("inplace", "i", "write the libraries into src")]  # noqa: RUF012
    boolean_options = ["inplace"]  # noqa: RUF012

    def initialize_options(self) -> None:
        """Called by setuptools."""
        self.build_lib = None
        self.inplace = self.editable_mode = False

    def finalize_options(self) -> None:
        """Called by setuptools."""
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    @property
    def folder(self) -> Path:
        """The directory of the libraries."""
        return Path("src" if self.inplace or self.editable_mode else self.build_lib, "dragoman/native/libraries")

    def run(self) -> None:
        """Replace the directory of the libraries; leave none if nothing can be compiled."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder.parent, prefix=".libraries-") as temporary:
            compiled = self.compile_into(new := Path(temporary, "new"))
            if self.folder.exists():
                self.folder.rename(Path(temporary, "old"))
            if compiled:
                new.rename(self.folder)

    def compile_into(self, folder: Path) -> bool:
        """Write the libraries and their list; return whether there are any."""
        folder.mkdir(mode=0o755)
        compiler = find_compiler()
        if compiler is None:
            self.warn("there is no C compiler (gcc 12 or clang): the package will be slower, without compiled kernels")
            return False
        entries = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for entry in pool.map(lambda variant: self.compile_variant(compiler, variant, folder), target_variants()):
                entries += entry
        if entries:
            listed = {"sources": source_digest(), "compiler": compiler_version(compiler), "variants": entries}
            (folder / LIST_NAME).write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
        return bool(entries)

    def compile_variant(self, compiler: list[str], variant: Variant, folder: Path) -> list[dict[str, object]]:
        """Compile one library and return its entry of the list, or nothing if that failed."""
        path = folder / f"kernels-{variant.name}.so"
        failure = compile_library(compiler, variant, path.resolve())
        if failure:
            self.warn(f"without the compiled kernels {variant.name}: {failure}")
            path.unlink(missing_ok=True)
            return []
        content = path.read_bytes()
        facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "needs": variant.needs}
        return [{"name": variant.name, "file": path.name, **facts}]

    def get_outputs(self) -> list[str]:
        """Return the files that were written."""
        return [str(path) for path in sorted(self.folder.glob("*"))]

    def get_output_mapping(self) -> dict[str, str]:
        """Called by setuptools for editable installations: no output is a copy of a source."""
        return {}

    def get_source_files(self) -> list[str]:
        """Return what a source distribution needs."""
        return [os.path.relpath(path) for path in sorted(SOURCES.glob("*.[ch]"))]


class build_with_kernels(build):  # noqa: N801
    """`build`, which also compiles the kernels."""

    sub_commands = [*build.sub_commands, ("build_kernels", None)]  # noqa: RUF012


class platform_wheel(bdist_wheel):  # noqa: N801
    """A wheel for every Python 3 on this kind of machine; on any machine if it has no libraries."""

    def run(self) -> None:
        """Build first: the name of the wheel depends on whether there are libraries."""
        self.run_command("build")
        self.root_is_pure = not self.get_finalized_command("build_kernels").get_outputs()
        self.distribution.has_ext_modules = lambda: not self.root_is_pure
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag of the wheel's name."""
        return "py3", "none", super().get_tag()[2]

    def write_wheelfile(self, *arguments: object, **options: object) -> None:
        """Give all files the same permissions whatever the umask is: they are part of the wheel's bytes."""
        super().write_wheelfile(*arguments, **options)
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o644)


if __name__ == "__main__":
    setup(cmdclass={"bdist_wheel": platform_wheel, "build": build_with_kernels, "build_kernels": build_kernels})
