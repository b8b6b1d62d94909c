from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman import recipe
from dragoman.data.corpus import ParallelCorpus
from dragoman.text.tokenizer import Tokenizer


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file, from bytes or lines, and return its path."""

    def written(name: str, content: bytes | list[str]) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else "".join(f"{line}\n" for line in content).encode())
        return path

    return written


@pytest.fixture
def corpus_of(write: Callable[..., Path]) -> Callable[..., ParallelCorpus]:
    """Write a corpus of pairs into two files."""

    def written(pairs: list[tuple[str, str]], name: str = "train") -> ParallelCorpus:
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        return ParallelCorpus.from_files(write(f"{name}.en", sources), write(f"{name}.de", targets))

    return written


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """A tokenizer of bytes: five letters are six tokens, with the space before them."""
    return Tokenizer.train(["text"], recipe.TokenizerConfig(kind="bytes"))
