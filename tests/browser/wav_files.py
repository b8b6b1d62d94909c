"""Recordings of Morse code as WAV files."""

import io

import numpy as np

from dragoman.corpora.morse import draw_recording

RATE = 8000


def encode_wav(samples: np.ndarray) -> bytes:
    """Return a WAV file with 16 bits per sample."""
    import soundfile

    content = io.BytesIO()
    soundfile.write(content, samples, RATE, format="WAV", subtype="PCM_16")
    return content.getvalue()


def draw_message() -> np.ndarray:
    """Return a message of some seconds."""
    return draw_recording("test", 0)[2]


def draw_three_messages() -> np.ndarray:
    """Return messages with pauses, together longer than any recording of the training: several segments."""
    return np.concatenate([draw_message(), np.zeros(RATE // 2, np.float32)] * 3)
