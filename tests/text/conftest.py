from collections.abc import Callable

import pytest

from dragoman import recipe
from dragoman.text.tokenizer import Tokenizer

LINES = [
    "A dog runs through the snow.",
    "Ein Hund läuft durch den Schnee.",
    "Two dogs play in the snow; it's cold.",
    "Zwei Hunde spielen im Schnee, es ist kälter als gestern.",
    "The  prices rose by 12.5 % in 2019 🙂",
] * 3


@pytest.fixture(scope="session")
def trained() -> Callable[..., Tokenizer]:
    """Return a tokenizer of a kind, trained once on a few lines."""
    made: dict[tuple[str, bool], Tokenizer] = {}

    def of_kind(kind: str, *, lowercase: bool = False) -> Tokenizer:
        if (kind, lowercase) not in made:
            config = recipe.TokenizerConfig.model_validate({"kind": kind, "size": 400, "lowercase": lowercase})
            made[kind, lowercase] = Tokenizer.train(LINES, config)
        return made[kind, lowercase]

    return of_kind
