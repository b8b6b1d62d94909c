from collections.abc import Callable

import numpy as np
import pytest

from dragoman.viewer.record import AttentionRecord

SOURCE = (" The", " lamp", " is", " old", ",", " but", " it", " work", "s", ".", "⟨end⟩")
TARGET = (" Die", " Lam", "pe", " ist", " alt", ",", " aber", " sie", " funktion", "iert", ".", "⟨end⟩")
PARTNERS = (0, 1, 1, 2, 3, 4, 5, 6, 7, 7, 9, 10)  # which source piece each target piece translates


def normalised(scores: np.ndarray, mask: np.ndarray | bool = True) -> np.ndarray:
    """Make rows of scores rows of weights, with nothing where `mask` is False."""
    weights = np.where(mask, np.exp(scores), 0)
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def near(rows: int, columns: int, offset: int, sharpness: float) -> np.ndarray:
    """Score positions by how near they are to a fixed offset from the row's own."""
    return -sharpness * np.abs(np.arange(columns) - np.arange(rows)[:, None] - offset)


def plausible_record(layers: int = 4, heads: int = 4) -> AttentionRecord:
    """Return weights as a trained model has them: positional, sharp, diffuse, aligned and sink heads."""
    chance = np.random.default_rng(7)
    inputs, outputs = len(SOURCE), len(TARGET)
    encoder, decoder, cross = [], [], []
    aligned = np.eye(inputs)[list(PARTNERS)]
    for layer in range(layers):
        for _ in range(heads):
            sharpness, offset = chance.uniform(0.2, 3), chance.integers(-2, 3)
            noise = chance.normal(0, 0.7, (outputs, inputs))
            sink = chance.uniform(-1, 3) * np.eye(inputs)[-1]
            own = near(inputs, inputs, offset, sharpness) + chance.normal(0, 0.6, (inputs, inputs)) + sink / 2
            encoder.append(normalised(own))
            past = near(outputs, outputs, -abs(offset), sharpness) + chance.normal(0, 0.6, (outputs, outputs))
            decoder.append(normalised(past, np.tri(outputs, dtype=bool)))
            cross.append(normalised(aligned * (1 + layer * chance.uniform(0.6, 1.6)) + noise * 0.9 + sink * 0.6))
    return AttentionRecord(
        source_pieces=SOURCE,
        target_pieces=TARGET,
        source_text="The lamp is old, but it works.",
        target_text="Die Lampe ist alt, aber sie funktioniert.",
        encoder=np.stack(encoder).reshape(layers, heads, inputs, inputs),
        decoder=np.stack(decoder).reshape(layers, heads, outputs, outputs),
        cross=np.stack(cross).reshape(layers, heads, outputs, inputs),
        title="runs/quickstart",
    )


def even_record(source: tuple[str, ...], target: tuple[str, ...], title: str = "") -> AttentionRecord:
    """Return a record of the given pieces with one layer of one head that looks everywhere alike."""
    inputs, outputs = len(source), len(target)
    return AttentionRecord(
        source_pieces=source,
        target_pieces=target,
        source_text="".join(source[:-1]).strip(),
        target_text="".join(target[:-1]).strip(),
        encoder=np.full((1, 1, inputs, inputs), 1 / inputs, np.float32),
        decoder=normalised(np.zeros((1, 1, outputs, outputs)), np.tri(outputs, dtype=bool)),
        cross=np.full((1, 1, outputs, inputs), 1 / inputs, np.float32),
        title=title,
    )


@pytest.fixture
def record() -> AttentionRecord:
    return plausible_record()


@pytest.fixture
def record_of() -> Callable[..., AttentionRecord]:
    return even_record
