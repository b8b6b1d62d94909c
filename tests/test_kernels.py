"""The compiled kernels come with the package, are chosen for the processor, and are loaded from nowhere else."""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import torch

import dragoman
from dragoman import kernels
from dragoman.errors import UserError
from dragoman.models.attention import attend
from dragoman.models.layers import Dropout, dropout_seed
from dragoman.native import functions
from dragoman.training.loss import cross_entropy_with_gradient_

ROOT = Path(__file__).parent.parent
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
CPU = torch.device("cpu")
needs_kernels = pytest.mark.skipif(functions.native_library() is None, reason="built without kernels")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the libraries to change, with nothing loaded from it yet."""
    folder = tmp_path / "libraries"
    shutil.copytree(kernels.LIBRARIES, folder) if kernels.LIBRARIES.exists() else folder.mkdir()
    monkeypatch.setattr(kernels, "LIBRARIES", folder)
    monkeypatch.delenv(kernels.SETTING, raising=False)
    forget()
    yield folder
    forget()


def forget() -> None:
    kernels.built_variants.cache_clear()
    kernels._load_chosen.cache_clear()


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """What is logged."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("dragoman").addHandler(handler)
    yield said
    logging.getLogger("dragoman").removeHandler(handler)


def has_sets(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(kernels, "instruction_sets", lambda: frozenset(names))


def is_installed_from_this_tree() -> bool:
    try:
        origin = json.loads(distribution("dragoman").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return False
    return origin.get("url") == ROOT.as_uri() and Path(dragoman.__file__).is_relative_to(ROOT)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
@pytest.mark.skipif(not is_installed_from_this_tree(), reason="not installed from this tree: run `make kernels`")
def test_an_installation_with_a_compiler_has_kernels() -> None:
    """Otherwise the tests would pass without ever testing them."""
    assert kernels.built_variants()
    if os.environ.get(kernels.SETTING) is None:
        assert (functions.native_library() is not None) == any(
            not variant.missing_sets() for variant in kernels.built_variants()
        )


@needs_kernels
def test_a_library_that_is_not_whole_gives_a_message_and_not_a_signal(package: Path) -> None:
    """Row M1 of issue 17: after a power cut, every command ended with SIGBUS and no message."""
    chosen = kernels.choose_kernels().variant
    assert chosen
    path = package / chosen.file
    whole = path.read_bytes()
    halves = whole[: len(whole) // 2], whole[:-1], b"", b"\0" * len(whole), whole[:64]
    flipped = bytes([*whole[:5000], whole[5000] ^ 1, *whole[5001:]])
    for damaged in (*halves, flipped, whole[:4096] + b"\0" * 4096 + whole[8192:]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{path}: .* is damaged. Install Dragoman again, or set DRAGOMAN_KERNELS"):
            kernels.load_library()
    path.unlink()
    with pytest.raises(UserError, match=rf"{path}: .* cannot be loaded \(.*No such file.*\). Install Dragoman again"):
        kernels.load_library()
    path.write_bytes(whole)
    assert kernels.load_library() is not None


@pytest.mark.parametrize("content", ["", "[]", "{", '{"sources": SOURCES, "variants": [{}]}', '{"sources": SOURCES}'])
def test_a_list_that_is_not_whole_gives_a_message(package: Path, content: str) -> None:
    (package / kernels.LIST_NAME).write_text(content.replace("SOURCES", json.dumps(kernels.source_digest())))
    with pytest.raises(UserError, match=r"kernels.json: .* is damaged. Install Dragoman again"):
        kernels.load_library()
    assert kernels.describe_kernels().startswith("none: ")


@needs_kernels
def test_libraries_of_other_sources_are_refused(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = shutil.copytree(kernels.SOURCES, tmp_path / "native")
    with (changed / "dropout.c").open("a") as file:
        file.write("/* another line */\n")
    monkeypatch.setattr(kernels, "SOURCES", changed)
    with pytest.raises(UserError, match=r"do not belong to the C files in .*native. Run `make kernels`"):
        kernels.load_library()


@pytest.mark.parametrize("setting", ["0", "off", "OFF", "none", "false", "no"])
def test_they_can_be_switched_off(
    package: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str], setting: str
) -> None:
    monkeypatch.setenv(kernels.SETTING, setting)
    assert kernels.load_library() is None
    assert kernels.describe_kernels() == f"none: DRAGOMAN_KERNELS={setting.lower()}"
    assert not warnings  # whoever switches them off knows it


@needs_kernels
def test_an_unknown_setting_names_the_known_ones(package: Path, monkeypatch: pytest.MonkeyPatch, command) -> None:
    known = [variant.name for variant in kernels.built_variants()]
    monkeypatch.setenv(kernels.SETTING, f"{known[0]}x")
    outcome = command("info", "--system")
    assert outcome.code == 2
    assert f"DRAGOMAN_KERNELS={known[0]}x: expected one of {', '.join(known)}, off, auto." in outcome.err
    assert f'Did you mean "{known[0]}"?' in outcome.err


@needs_kernels
def test_the_fastest_variant_that_the_processor_has_is_chosen(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variants = kernels.built_variants()
    assert kernels.kernel_name() == next(variant.name for variant in variants if not variant.missing_sets())
    for variant in variants:
        has_sets(monkeypatch, *variant.needs, "something_else")
        assert kernels.choose_kernels().variant == variant
    has_sets(monkeypatch, *variants[-1].needs[1:])
    choice = kernels.choose_kernels()
    assert choice.variant is None
    assert choice.reason == f"this processor does not have {variants[-1].needs[0]}"


@needs_kernels
def test_a_variant_can_be_named_if_the_processor_runs_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slowest = kernels.built_variants()[-1]
    monkeypatch.setenv(kernels.SETTING, slowest.name.upper())
    assert kernels.choose_kernels().variant == slowest
    has_sets(monkeypatch)
    with pytest.raises(UserError, match=f"={slowest.name}: this processor does not have {slowest.needs[0]}.*Unset"):
        kernels.check_setting()


def test_without_kernels_it_says_once_what_that_costs_and_what_to_do(package: Path, warnings: list[str]) -> None:
    shutil.rmtree(package)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: kernels.load_library(), range(64))) == [None] * 64
    (said,) = warnings
    assert "none were compiled when Dragoman was installed: training takes up to 1.8 times as long" in said
    assert "Install a C compiler (gcc 12 or clang) and install Dragoman again" in said


CANARY = """
#include <stdio.h>
__attribute__((constructor)) static void run(void) { fclose(fopen("%s", "w")); }
"""
LOOK = """
import sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == "ctypes.dlopen" else None)
import torch
from dragoman import native
from dragoman.models.attention import attend
del opened[:]
query = torch.randn(1, 1, 3, 16)
attend(query, query, query, None)
print(native.is_available(), [path for path in opened if path])
"""


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
def test_no_library_of_a_cache_is_loaded(tmp_path: Path) -> None:
    """Row S1 of issue 17: another user's library in the cache was run, as root if root translated."""
    canary, planted = tmp_path / "canary", tmp_path / "planted.so"
    (tmp_path / "planted.c").write_text(CANARY % canary)
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", planted, tmp_path / "planted.c"], check=True)
    for folder in ("named", "xdg/dragoman", "home/.cache/dragoman"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("kernels-0123456789abcdef01234567.so", *(path.name for path in kernels.LIBRARIES.glob("*.so"))):
            shutil.copy(planted, tmp_path / folder / name)
    environment = {
        **os.environ, "DRAGOMAN_CACHE": str(tmp_path / "named"), "XDG_CACHE_HOME": str(tmp_path / "xdg"),
        "HOME": str(tmp_path / "home"), "PYTHONPATH": str(Path(dragoman.__file__).parent.parent),
    }  # fmt: skip
    looked = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=environment,
        cwd=tmp_path / "named",
        check=True,
        capture_output=True,
        text=True,
    )
    expected = [str(kernels.choose_kernels().variant.path)] if functions.native_library() else []
    assert looked.stdout == f"{bool(expected)} {expected}\n"
    assert not canary.exists()
    subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(planted)!r})"], check=True)
    assert canary.exists()  # the trap would have shown it


def test_the_machine_is_described(command) -> None:
    outcome = command("info", "--system", "--json")
    facts = json.loads(outcome.out)
    assert facts["dragoman"] == dragoman.__version__
    assert facts["kernels"] == kernels.describe_kernels()
    assert {"python", "torch", "processor", "instruction_sets", "threads", "cores"} <= facts.keys()
    printed = command("info", "--system").out
    assert "instruction sets  " in printed
    assert command("info").err == "dragoman: Give either a run, as in `dragoman info runs/mine`, or --system.\n"


def test_torch_computes_the_same_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key = torch.randn(2, 3, 4, 16), torch.randn(2, 3, 7, 16)
    logits, target = torch.randn(5, 40), torch.tensor([0, 39, 7, 7, 1])
    compiled = [attend(query, key, key, None)[0], gradient := logits.clone()]
    losses = cross_entropy_with_gradient_(gradient, target, 0.1)
    monkeypatch.setattr(functions, "native_library", lambda: None)
    plain = [attend(query, key, key, None)[0], gradient := logits.clone()]
    assert cross_entropy_with_gradient_(gradient, target, 0.1) == pytest.approx(losses, rel=1e-5)
    for with_them, without in zip(compiled, plain, strict=True):
        torch.testing.assert_close(with_them, without, rtol=1e-5, atol=1e-6)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_takes_the_same_elements_without_them(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    x, around = torch.randn(3, 7, 11, dtype=dtype), torch.randn(3, 7, 11)

    def dropped() -> list[torch.Tensor]:
        with dropout_seed(5, CPU):
            layer = Dropout(0.3).train()
            return [layer(x), layer(x, around), layer(x[:1])]

    with_them = dropped()
    monkeypatch.setattr(functions, "native_library", lambda: None)
    for one, other in zip(with_them, dropped(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@needs_kernels
def test_a_training_goes_the_same_way_without_them(toy_recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other dropout masks would give other losses from the first step on."""
    widths = ("model.width=32", "model.dropout=0.3", "training.precision=float32", "training.steps=6")

    def losses(name: str) -> list[float]:
        steps: list[float] = []
        dragoman.train(
            toy_recipe(tmp_path / name, *widths),
            on_event=lambda event: steps.append(event.nll) if hasattr(event, "nll") else None,
        )
        return steps

    with_them = losses("with")
    monkeypatch.setattr(functions, "native_library", lambda: None)
    assert losses("without") == pytest.approx(with_them, rel=1e-3)
    assert len(with_them) == 6


@needs_kernels
@pytest.mark.parametrize("target", [40, -1, 2**40])
def test_a_target_beyond_the_vocabulary_writes_nowhere(target: int) -> None:
    with pytest.raises((IndexError, RuntimeError), match="40"):
        cross_entropy_with_gradient_(torch.randn(2, 40), torch.tensor([3, target]), 0.1)
