"""The compiled functions are made once, and done without where they cannot be made."""

import stat

import pytest
import torch

from dragoman.models.attention import attend
from dragoman.models.layers import Dropout
from dragoman.native import build, functions
from dragoman.training.loss import cross_entropy_with_gradient_


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An empty cache and nothing loaded yet; what was loaded before comes back afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DRAGOMAN_CACHE", raising=False)
    monkeypatch.setattr(build, "load_library", build.load_library.__wrapped__)
    return tmp_path


def compiler(folder, script):
    """Put a program called cc at the front of the path."""
    program = folder / "cc"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(folder)


@pytest.mark.slow
@pytest.mark.skipif(functions.native_library() is None, reason="no C compiler here")
def test_the_second_time_nothing_is_compiled(fresh):
    build.load_library()
    (made,) = (fresh / "dragoman").iterdir()
    changed_at = made.stat().st_mtime_ns
    assert build.load_library() is not None
    assert made.stat().st_mtime_ns == changed_at
    assert [made] == list((fresh / "dragoman").iterdir())


def test_without_a_compiler_there_are_none(fresh, monkeypatch):
    monkeypatch.setenv("PATH", str(fresh))
    assert build.load_library() is None


def test_a_compiler_that_fails_is_no_compiler(fresh, monkeypatch):
    monkeypatch.setenv("PATH", compiler(fresh, 'test "$1" = --version'))
    assert build.load_library() is None


@pytest.mark.slow
@pytest.mark.skipif(functions.native_library() is None, reason="no C compiler here")
def test_the_cache_may_be_elsewhere(fresh, monkeypatch):
    monkeypatch.setenv("DRAGOMAN_CACHE", str(fresh / "elsewhere"))
    assert build.load_library() is not None
    assert [path.suffix for path in (fresh / "elsewhere").iterdir()] == [".so"]


def test_a_cache_that_cannot_be_written_is_no_cache(fresh, monkeypatch):
    (fresh / "file").write_text("")
    monkeypatch.setenv("DRAGOMAN_CACHE", str(fresh / "file"))
    assert build.load_library() is None


def test_they_can_be_switched_off(fresh, monkeypatch):
    monkeypatch.setenv("DRAGOMAN_KERNELS", "off")
    assert build.load_library() is None
    assert not list(fresh.iterdir())


def test_torch_does_the_same_without_them(monkeypatch):
    query, key = torch.randn(2, 3, 4, 16), torch.randn(2, 3, 7, 16)
    logits, target = torch.randn(5, 40), torch.tensor([0, 39, 7, 7, 1])
    compiled = [attend(query, key, key, None)[0], gradient := logits.clone()]
    losses = cross_entropy_with_gradient_(gradient, target, 0.1)
    monkeypatch.setattr(functions, "native_library", lambda: None)
    plain = [attend(query, key, key, None)[0], gradient := logits.clone()]
    assert cross_entropy_with_gradient_(gradient, target, 0.1) == pytest.approx(losses, rel=1e-5)
    for with_them, without in zip(compiled, plain, strict=True):
        torch.testing.assert_close(with_them, without, rtol=1e-5, atol=1e-6)
    kept = Dropout(0.25).train()(torch.ones(100_000), torch.full((100_000,), 2.0)) - 2
    assert (kept == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert kept.mean().item() == pytest.approx(1.0, abs=0.02)
