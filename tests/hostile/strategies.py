"""Hypothesis strategies for what others may have made: run directories, recipes, tokenizers, weights."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from hypothesis import strategies as st
from mutations import MUTATIONS, change_tree, dump

RELEASED = Path(__file__).parents[1] / "released" / "0.1.0"
BASES = sorted(path.parent for path in RELEASED.glob("*/recipe.toml"))  # a run of every task and architecture

randoms = st.randoms(use_true_random=False)
changes = st.lists(st.sampled_from(sorted(MUTATIONS)), min_size=1, max_size=4)
bases = st.sampled_from(BASES)


@contextmanager
def hostile_run(base: Path, names: list[str], random: Random) -> Iterator[Path]:
    """Yield a copy of a run, changed by these mutations; beside it there is outside/secret."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(shutil.copytree(base, Path(folder) / "run"))
        (Path(folder) / "outside").mkdir()
        (Path(folder) / "outside" / "secret").write_text("a secret\n")
        for name in names:
            MUTATIONS[name](run, random)
        yield run


@st.composite
def tokenizer_files(draw: st.DrawFn) -> str:
    """Return the text of a tokenizer.json with one to three changes."""
    files = [path for base in BASES for path in sorted(base.glob("tokenizer*.json"))]
    tree, random = json.loads(draw(st.sampled_from(files)).read_bytes()), draw(randoms)
    for _ in range(draw(st.integers(1, 3))):
        tree = change_tree(tree, random)
    return dump(tree, random)


@st.composite
def recipe_files(draw: st.DrawFn) -> bytes:
    """Return the content of a recipe.toml with one to three changes."""
    with hostile_run(draw(bases), ["change_recipe"] * draw(st.integers(1, 3)), draw(randoms)) as run:
        return (run / "recipe.toml").read_bytes()
