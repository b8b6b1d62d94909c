"""Recordings of Morse code with their texts: a corpus for transcription that the program synthesises itself.

A message is one to four words of the kind that radio operators send: common words, abbreviations and Q codes, call
signs, signal reports, numbers, and groups of five random letters as in practice transmissions. `morse.toml` holds the
words and the patterns of messages. A `Keying` says how a message is sent and received; `synthesise` turns the two into
sound.

The splits differ in three ways. A stable hash gives every word, call sign, number and group to one split, so that no
two splits share one; only the procedure words ("CQ", "DE", "K" …) are common to all. Training draws its speeds from
`TRAINING_SPEEDS`, validation and test from `HELD_OUT_SPEEDS`. The signal-to-noise ratio is between 3 and 30 dB in
training, and 10 dB in validation and test.

Every recording is a function of the seed, the split and its index alone. Its bytes are the same for the same machine
and version of NumPy; another processor may round some samples differently.
"""

from __future__ import annotations

import math
import re
import tomllib
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt

from dragoman.errors import UserError, did_you_mean
from dragoman.storage import atomic_file, write_atomically

MORSE_CODE = {
    "A": ".-", "B": "-...", "C": "-.-.", "D": "-..", "E": ".", "F": "..-.", "G": "--.", "H": "....", "I": "..",
    "J": ".---", "K": "-.-", "L": ".-..", "M": "--", "N": "-.", "O": "---", "P": ".--.", "Q": "--.-", "R": ".-.",
    "S": "...", "T": "-", "U": "..-", "V": "...-", "W": ".--", "X": "-..-", "Y": "-.--", "Z": "--..",
    "0": "-----", "1": ".----", "2": "..---", "3": "...--", "4": "....-", "5": ".....", "6": "-....", "7": "--...",
    "8": "---..", "9": "----.",
    ".": ".-.-.-", ",": "--..--", "?": "..--..", "/": "-..-.", "=": "-...-", "+": ".-.-.",
}  # fmt: skip
"""International Morse code (ITU-R M.1677-1): the letters, the digits and the punctuation marks of the messages."""

SPLITS = ("train", "valid", "test")
HELD_OUT_SPEEDS = (14, 17, 21, 25, 28)  # words per minute
TRAINING_SPEEDS = tuple(speed for speed in range(12, 31) if speed not in HELD_OUT_SPEEDS)
_TRAINING_SNR_DB = 3.0, 30.0  # minimum and maximum
_HELD_OUT_SNR_DB = 10.0, 10.0
_HELD_OUT_PERCENT = {"test": 15, "valid": 10}  # of all words
_MIN_SECONDS, _MAX_SECONDS = 2.5, 6.0  # of a recording with an even hand
_MAX_DEVIATION = 2.0  # of the length of an element or gap, in standard deviations
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BANDS = ("3.5", "7.0", "10.1", "14.0", "21.0", "28.0")  # MHz, without the last two digits of the frequency
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)

_TABLES: dict[str, str] = tomllib.loads((files("dragoman.corpora") / "morse.toml").read_text(encoding="utf-8"))
_CALL_PREFIXES = _TABLES["call_prefixes"].split()
_PATTERNS = [
    pattern
    for weight, pattern in (line.split(maxsplit=1) for line in _TABLES["patterns"].strip().splitlines())
    for _ in range(int(weight))
]
PROCEDURE_WORDS = frozenset(re.findall(r"(?<!\S)\w+(?!\S)", " ".join(_PATTERNS)))


@dataclass(frozen=True)
class Keying:
    """How a message is sent and received; the defaults are the standard rhythm without fading or noise.

    The length of each element and gap is multiplied by 1 + `unevenness` · x, where x is drawn from the normal
    distribution and limited to ±2. The tone rises along a raised cosine from the moment at which the key goes down,
    and falls from the moment at which it goes up, so an element has its length at half the amplitude.

    The signal-to-noise ratio compares two powers: the mean square of the tone, after fading, over the samples at which
    the amplitude of the keying is at least half; and the variance of the white noise, that is, its power in the whole
    band from 0 to half the sampling rate. The ratio in the 2500 Hz of a voice channel is 2.04 dB higher at 8000 samples
    per second, and 0.97 dB lower at 4000.
    """

    words_per_minute: float = 20.0  # of the word "PARIS", which is 50 dots long with the gap after it
    pitch_hz: float = 600.0
    rise_seconds: float = 0.005  # shorter than the shortest element or gap
    unevenness: float = 0.0  # standard deviation of the length of an element or gap, as a part of this length
    dash_dots: float = 3.0  # the length of a dash, in dots, as are those of the gaps
    element_gap_dots: float = 1.0
    letter_gap_dots: float = 3.0
    word_gap_dots: float = 7.0
    fading_depth: float = 0.0  # the amplitude varies between 1 - fading_depth and 1
    fading_seconds: float = 4.0  # from one maximum of the amplitude to the next
    fading_phase: float = 0.0  # at the beginning of the recording; 0 is a maximum, 0.5 a minimum
    snr_db: float = math.inf
    lead_in_seconds: float = 0.2
    trailing_seconds: float = 0.2
    peak: float = 0.8  # the largest absolute value of a sample

    @property
    def dot_seconds(self) -> float:
        """The length of a dot."""
        return 1.2 / self.words_per_minute


def draw_keying(
    random: np.random.Generator,
    *,
    speeds: Sequence[int] = TRAINING_SPEEDS,
    snr_db: tuple[float, float] = _TRAINING_SNR_DB,
) -> Keying:
    """Draw the keying of a recording; `snr_db` is the minimum and the maximum.

    The ranges keep every message readable: the longest dot is shorter than the shortest dash, and likewise the gaps.
    """
    return Keying(
        words_per_minute=speeds[int(random.integers(len(speeds)))],
        pitch_hz=random.uniform(400, 900),
        rise_seconds=random.uniform(0.003, 0.007),
        unevenness=random.uniform(0, 0.12),
        dash_dots=random.uniform(2.6, 3.6),
        element_gap_dots=random.uniform(0.9, 1.2),
        letter_gap_dots=random.uniform(2.6, 3.6),
        word_gap_dots=random.uniform(6.0, 8.0),
        fading_depth=random.uniform(0, 0.7),
        fading_seconds=random.uniform(2, 8),
        fading_phase=random.uniform(0, 1),
        snr_db=random.uniform(*snr_db),
        lead_in_seconds=random.uniform(0.1, 0.4),
        trailing_seconds=random.uniform(0.1, 0.4),
        peak=random.uniform(0.2, 0.9),
    )


# Sound


def synthesise(text: str, keying: Keying, rate: int, random: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return the recording of a text at `rate` samples per second; `random` draws the unevenness and the noise."""
    if keying.pitch_hz >= rate / 2:
        raise UserError(f"A tone of {keying.pitch_hz:g} Hz needs more than {2 * keying.pitch_hz:g} samples per second.")
    runs = _run_seconds(text, keying)
    runs *= 1 + keying.unevenness * random.standard_normal(len(runs)).clip(-_MAX_DEVIATION, _MAX_DEVIATION)
    edges = np.rint(rate * (keying.lead_in_seconds + np.cumsum([0.0, *runs]))).astype(np.int64)
    rise = round(rate * keying.rise_seconds)
    envelope = _envelope(edges, rise, samples=edges[-1] + rise + round(rate * keying.trailing_seconds))
    tone = envelope * _fading(keying, rate, len(envelope)) * _carrier(keying.pitch_hz / rate, len(envelope))
    tone_power = np.square(tone[envelope >= 0.5]).mean()
    recording = random.standard_normal(len(tone), dtype=np.float32)
    recording *= math.sqrt(tone_power / 10.0 ** (keying.snr_db / 10))
    recording += tone
    recording *= keying.peak / np.abs(recording).max()
    return recording


def _run_seconds(text: str, keying: Keying) -> npt.NDArray[np.float64]:
    """Return the lengths of the runs of an even hand: key down, key up, …, key down."""
    unknown = sorted(set("".join(text.split())) - set(MORSE_CODE))
    if unknown:
        raise UserError(f'There is no Morse code for "{unknown[0]}"; use {"".join(MORSE_CODE)} and spaces.')
    if not text.split():
        raise UserError("The text of a recording must not be empty.")
    dots = {
        ".": 1.0,
        "-": keying.dash_dots,
        "|": keying.element_gap_dots,
        " ": keying.letter_gap_dots,
        "/": keying.word_gap_dots,
    }
    runs = "/".join(" ".join("|".join(MORSE_CODE[character]) for character in word) for word in text.split())
    return keying.dot_seconds * np.array([dots[run] for run in runs])


def _envelope(edges: npt.NDArray[np.int64], rise: int, samples: int) -> npt.NDArray[np.float32]:
    """Return the amplitude of a key that goes down at the first edge, up at the second, and so on."""
    levels = np.arange(len(edges) + 1, dtype=np.float32) % 2
    envelope = np.repeat(levels, np.diff(edges, prepend=0, append=samples))
    slope = 0.5 - 0.5 * np.cos(np.pi * np.arange(rise) / max(rise, 1))
    starts = edges[:, np.newaxis]
    envelope[starts[::2] + np.arange(rise)] = slope
    envelope[starts[1::2] + np.arange(rise)] = 1 - slope
    return envelope


def _fading(keying: Keying, rate: int, samples: int) -> npt.NDArray[np.float32]:
    """Return the amplitude of a signal that fades and comes back periodically."""
    cycles = np.arange(samples, dtype=np.float32)
    cycles *= 1 / (rate * keying.fading_seconds)
    cycles += keying.fading_phase
    return _cosine(cycles) * np.float32(keying.fading_depth / 2) + np.float32(1 - keying.fading_depth / 2)


def _carrier(frequency: float, samples: int) -> npt.NDArray[np.float32]:
    """Return a tone with a frequency in cycles per sample, at most 0.5."""
    # A cycle is 2³² units, so the phase wraps around by itself and stays exact after thousands of cycles.
    phases = np.arange(samples, dtype=np.uint32) * np.uint32(round(frequency * 2**32))
    return _cosine(phases.astype(np.float32) * np.float32(2**-32))


def _cosine(cycles: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    cosine: npt.NDArray[np.float32] = np.cos(np.float32(2 * np.pi) * cycles)
    return cosine


# Texts


def _draw_message(split: str, random: np.random.Generator) -> str:
    """Draw a message whose words, but for the procedure words, belong to a split."""
    pattern = _choose(_PATTERNS, random)
    return re.sub(r"<(\w+)>", lambda field: _draw_field(field[1], split, random), pattern)


def _draw_field(kind: str, split: str, random: np.random.Generator) -> str:
    if kind in ("word", "code"):
        return _choose(_words_of_split(f"{kind}s", split), random)
    while True:
        text = _GENERATORS[kind](random)
        if _split_of_word(text) == split:
            return text


@cache
def _words_of_split(table: str, split: str) -> list[str]:
    return [word for word in _TABLES[table].split() if _split_of_word(word) == split]


def _split_of_word(word: str) -> str:
    """Return the split of a word; it is the same on every machine and in every run."""
    percent = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") % 100
    if percent < _HELD_OUT_PERCENT["test"]:
        return "test"
    return "valid" if percent < _HELD_OUT_PERCENT["test"] + _HELD_OUT_PERCENT["valid"] else "train"


def _choose(choices: Sequence[str], random: np.random.Generator) -> str:
    return choices[int(random.integers(len(choices)))]


def _draw_letters(count: int, random: np.random.Generator) -> str:
    return "".join(_LETTERS[index] for index in random.integers(len(_LETTERS), size=count))


def _draw_call(random: np.random.Generator) -> str:
    """Draw a call sign such as DL1ABC or 9A5K."""
    return f"{_choose(_CALL_PREFIXES, random)}{random.integers(10)}{_draw_letters(int(random.integers(1, 4)), random)}"


def _draw_report(random: np.random.Generator) -> str:
    """Draw a report of readability, strength and tone such as 579."""
    return f"{random.integers(3, 6)}{random.integers(2, 10)}{random.integers(7, 10)}"


def _draw_serial(random: np.random.Generator) -> str:
    """Draw the number of a message, such as 042."""
    return f"{random.integers(1, 1000):03}"


def _draw_time(random: np.random.Generator) -> str:
    """Draw a time of the day such as 1430."""
    return f"{random.integers(24):02}{random.integers(60):02}"


def _draw_frequency(random: np.random.Generator) -> str:
    """Draw a frequency in MHz such as 14.060."""
    return f"{_choose(_BANDS, random)}{random.integers(100):02}"


def _draw_group(random: np.random.Generator) -> str:
    """Draw five letters without meaning: a model that has only seen words learns to guess them."""
    return _draw_letters(5, random)


_GENERATORS: dict[str, Callable[[np.random.Generator], str]] = {
    "call": _draw_call,
    "report": _draw_report,
    "serial": _draw_serial,
    "time": _draw_time,
    "frequency": _draw_frequency,
    "group": _draw_group,
}


# The corpus


def draw_recording(
    split: str, index: int, *, seed: int = 1, rate: int = 8000
) -> tuple[str, Keying, npt.NDArray[np.float32]]:
    """Return the text, the keying and the samples of a recording; they depend on the arguments alone."""
    _check_split(split)
    random = np.random.default_rng((seed, SPLITS.index(split), index))
    if split == "train":
        keying = draw_keying(random)
    else:
        keying = draw_keying(random, speeds=HELD_OUT_SPEEDS, snr_db=_HELD_OUT_SNR_DB)
    while True:
        text = _draw_message(split, random)
        seconds = keying.lead_in_seconds + _run_seconds(text, keying).sum() + keying.trailing_seconds
        if _MIN_SECONDS <= seconds <= _MAX_SECONDS:
            return text, keying, synthesise(text, keying, rate, random)


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise UserError(f'There is no split "{split}"; choose {", ".join(SPLITS)}.{did_you_mean(split, SPLITS)}')


def write_morse_corpus(
    folder: Path,
    sizes: Mapping[str, int],
    *,
    seed: int = 1,
    rate: int = 8000,
    on_progress: Callable[[int], None] | None = None,
) -> None:
    """Write a manifest and an archive of WAV files for each split: "train.tsv" with "path<TAB>text", and "train.zip".

    A path is the name of a file in the archive. `on_progress` receives 1 after each recording.
    """
    for split in sizes:
        _check_split(split)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in sizes.items():
        manifest = folder / f"{split}.tsv"
        manifest.unlink(missing_ok=True)  # so that there is none until its archive is complete
        lines = []
        with atomic_file(folder / f"{split}.zip") as temporary, ZipFile(temporary, "w") as archive:
            for index in range(count):
                text, _, recording = draw_recording(split, index, seed=seed, rate=rate)
                path = f"{split}-{index:05}.wav"
                _add_file(archive, path, _encode_wav(recording, rate))
                lines.append(f"{path}\t{text}\n")
                if on_progress:
                    on_progress(1)
        write_atomically(manifest, "".join(lines).encode())


def write_message(path: Path, text: str, *, seed: int = 1, rate: int = 8000) -> None:
    """Write a text as a WAV file that sounds like a recording of the test split."""
    random = np.random.default_rng(seed)
    keying = draw_keying(random, speeds=HELD_OUT_SPEEDS, snr_db=_HELD_OUT_SNR_DB)
    write_atomically(path, _encode_wav(synthesise(text, keying, rate, random), rate))


def _encode_wav(recording: npt.NDArray[np.float32], rate: int) -> bytes:
    """Return the bytes of a WAV file with one channel of 16 bits."""
    buffer = BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.rint(recording * 32767).astype("<i2").tobytes())
    return buffer.getvalue()


def _add_file(archive: ZipFile, name: str, content: bytes) -> None:
    """Store a file in an archive, without compression, the same way on every system and at every time."""
    entry = ZipInfo(name, _ZIP_TIME)
    entry.create_system = 3  # Unix
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)
