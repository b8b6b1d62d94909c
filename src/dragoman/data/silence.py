"""Silence: where a long recording is cut into stretches that a model can read.

A recording is read block by block and is never in memory as a whole. No sample is changed, left out or repeated.
Stretches without speech are not recognised here.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from dragoman.data.sound_files import Samples

_Levels = npt.NDArray[np.float64]  # dB, one for each window

WINDOWS_PER_SECOND = 100
_HISTORY_WINDOWS = 10 * WINDOWS_PER_SECOND  # before a stretch, whose levels count for the threshold of silence too
_MIN_SECONDS = 0.1  # of a stretch, unless `max_seconds` is less than twice as long
_NOISE_PERCENTILE, _SPEECH_PERCENTILE = 5, 95
_MAX_RANGE = 50.0  # dB from noise to speech: a pause need not be as quiet as digital silence
_THRESHOLD = 0.15  # of the way from noise to speech
_MIN_POWER = 1e-10
_SMOOTHED_WINDOWS = 5  # one level is the mean of so many, since noise varies from window to window
_QUIET_WINDOWS = 12  # around the quietest place, if there is no pause


def split_at_silence(
    blocks: Iterable[Samples], rate: int, *, max_seconds: float, min_silence_seconds: float = 0.2
) -> Iterator[tuple[float, Samples]]:
    """Yield stretches of a recording with the time at which each begins; none is longer than `max_seconds`.

    A recording that is not longer comes out whole. A longer one is cut in the middle of the longest pause that leaves
    a stretch between half of `max_seconds` and all of it; without a pause of `min_silence_seconds`, at the quietest
    place. The last two stretches may be as short as a quarter. How samples are divided into blocks does not matter.
    """
    limit, window = math.floor(max_seconds * rate + 1e-6), max(1, rate // WINDOWS_PER_SECOND)  # samples
    if max_seconds < _MIN_SECONDS or limit < 4 * window:
        raise ValueError(f"max_seconds must be at least {_MIN_SECONDS}, got {max_seconds}.")
    look_ahead = limit + limit // 2
    chunks = regroup(blocks, window * math.ceil(limit / 2 / window))
    min_silence = min_silence_seconds * rate / window
    held, start = np.zeros(0, np.float32), 0  # the samples from `start` on
    levels, past = np.zeros(0), 0  # of what is held, after `past` windows before it
    while True:
        while len(held) <= look_ahead and (chunk := next(chunks, None)) is not None:
            held = np.concatenate([held, chunk])
            levels = np.concatenate([levels, window_levels(chunk, window)])
        if len(held) <= limit:
            break
        earliest, latest = _cut_range(min(len(held), look_ahead), limit, window, rate)
        cut = _find_cut(levels, past + earliest, past + latest, min_silence)
        end = (cut - past) * window
        yield start / rate, held[:end].copy()
        start, held = start + end, held[end:]
        past = min(cut, _HISTORY_WINDOWS)
        levels = levels[cut - past :]
    if len(held):
        yield start / rate, held


def regroup(blocks: Iterable[Samples], size: int) -> Iterator[Samples]:
    """Yield the same samples in blocks of one size; the last may be smaller."""
    parts: list[Samples] = []
    missing = size
    for block in blocks:
        rest = block
        while len(rest) >= missing:
            yield np.concatenate([*parts, rest[:missing]])
            parts, rest, missing = [], rest[missing:], size
        if len(rest):
            parts.append(rest)
            missing -= len(rest)
    if parts:
        yield np.concatenate(parts)


def window_levels(samples: Samples, window: int) -> _Levels:
    """Return the power of each whole window without its mean, since a recording may have an offset."""
    rows = samples[: len(samples) // window * window].reshape(-1, window).astype(np.float64)
    with np.errstate(invalid="ignore"):
        power = np.nan_to_num(rows.var(axis=1), nan=0.0)
    levels: _Levels = 10 * np.log10(np.maximum(power, _MIN_POWER))
    return levels


def _cut_range(remaining: int, limit: int, window: int, rate: int) -> tuple[int, int]:
    """Return the windows before and after which a stretch is not cut, so that what remains is not tiny.

    Of 1.5 times the limit, a stretch takes a half to all of the limit. If less remains, both parts of it are at least
    a quarter of the limit long and at most the limit.
    """
    shortest = max(limit // 4 // window, math.ceil(_MIN_SECONDS * rate / window))
    shortest = min(shortest, limit // 2 // window)
    return max(shortest, math.ceil((remaining - limit) / window)), min(limit, remaining - shortest * window) // window


def _find_cut(levels: _Levels, earliest: int, latest: int, min_silence: float) -> int:
    """Return the number of the window before which to cut: as far as possible from sound, or where it is quietest."""
    smooth = smooth_levels(levels)
    edges = np.flatnonzero(np.diff(find_silence(smooth), prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    cuts = np.clip((starts + ends) // 2, earliest, latest)
    distances = np.minimum(cuts - starts, ends - cuts)  # to sound; negative for a pause that is out of reach
    if len(cuts) and 2 * distances.max() + 1 >= min_silence:
        return int(cuts[_last_argmax(distances)])
    return earliest + _last_argmax(-_moving_mean(smooth, _QUIET_WINDOWS)[earliest : latest + 1])


def smooth_levels(levels: _Levels) -> _Levels:
    """Return the mean of the levels around each, with those that are much lower than speech raised."""
    if not len(levels):
        return levels
    quietest = np.percentile(levels, _SPEECH_PERCENTILE) - _MAX_RANGE
    return _moving_mean(np.maximum(levels, quietest), _SMOOTHED_WINDOWS)


def find_silence(smooth: _Levels) -> npt.NDArray[np.bool_]:
    """Return which of some smoothed levels are silence: closer to the noise than to speech."""
    if not len(smooth):
        return np.zeros(0, np.bool_)
    return smooth < np.percentile(smooth, _NOISE_PERCENTILE) + _THRESHOLD * level_range(smooth)


def level_range(smooth: _Levels) -> float:
    """Return the difference between speech and noise, in dB, of smoothed levels."""
    if not len(smooth):
        return 0.0
    noise, speech = np.percentile(smooth, (_NOISE_PERCENTILE, _SPEECH_PERCENTILE))
    return float(speech - noise)


def _moving_mean(values: _Levels, count: int) -> _Levels:
    """Return the mean of `count` values around each, or around the place before it if the count is even."""
    padded = np.pad(values, (count // 2, (count - 1) // 2), mode="edge")
    return np.convolve(padded, np.full(count, 1 / count), "valid")


def _last_argmax(values: npt.NDArray[np.generic]) -> int:
    return len(values) - 1 - int(np.argmax(values[::-1]))
