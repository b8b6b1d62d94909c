"""Features of sound: samples at another rate, and log-mel frames. `sound_files` reads the samples."""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dragoman.data.sound_files import Samples
from dragoman.errors import UserError, format_count

Features = npt.NDArray[np.float32]  # T bands
Pause = Callable[[], None]  # called from time to time during a computation; what it raises ends it

HOP_SECONDS = 0.01  # between the frames of `log_mel`, by default
_CHUNK_VALUES = 1 << 18  # computed at a time
_ZERO_CROSSINGS = 48  # of the sinc on each side
_ROLLOFF = 0.95  # the cut-off, as a share of the lower Nyquist frequency
_KAISER_BETA = 8.0  # with 48 zero crossings: over 75 dB less from the lower Nyquist frequency on

_LOG_FLOOR = np.float32(1e-10)
_SILENCE = np.log(_LOG_FLOOR)
_RANGE = np.float32(8 * math.log(10))  # 80 dB: what is so much quieter than the loudest frame is digital silence
_MIN_DEVIATION = np.float32(1e-3)


def resample(samples: Samples, rate: int, new_rate: int, *, pause: Pause | None = None) -> Samples:
    """Return the samples at another rate: ceil(n * new_rate / rate) of them, with silence before and after the sound.

    Only the ratio of the rates matters: for a recording that is spoken faster by `speed`, `new_rate` is rate / speed.
    """
    common = math.gcd(rate, new_rate)
    up, down = new_rate // common, rate // common
    if up == down or not len(samples):
        return samples
    # Output row * up + phase lies `phase * down / up` input samples after input row * down.
    length = -(-len(samples) * up // down)
    rows = -(-length // up)
    radius = _kernel_radius(up, down)
    padded = np.pad(samples, (radius, rows * down - len(samples) + radius))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * radius + 1)
    resampled = np.empty((rows, up), np.float32)
    phases_together = max(1, min(up, _CHUNK_VALUES // (2 * radius + 1)))
    rows_together = max(1, _CHUNK_VALUES // (2 * radius + 1) // phases_together)
    for phase in range(0, min(up, length), phases_together):
        kernels = _sinc_kernels(up, down, phase, min(up, phase + phases_together))  # P taps
        centres = np.arange(phase, phase + len(kernels)) * down // up
        for row in range(0, rows, rows_together):
            part = resampled[row : row + rows_together, phase : phase + len(kernels)]  # R P
            starts = np.arange(row, row + len(part))[:, None] * down + centres
            np.einsum("rpt,pt->rp", windows[starts], kernels, out=part)
            if pause:
                pause()
    return resampled.reshape(-1)[:length]


def _kernel_radius(up: int, down: int) -> int:
    return math.ceil(_ZERO_CROSSINGS / (_ROLLOFF * min(1.0, up / down)))


@lru_cache(maxsize=32)  # of 1 MB at most, or one phase
def _sinc_kernels(up: int, down: int, first: int, last: int) -> Samples:
    """Return the weights of the input samples around the outputs of some phases: a sinc in a Kaiser window."""
    cutoff = _ROLLOFF * min(1.0, up / down)  # relative to the input's Nyquist frequency
    radius = _kernel_radius(up, down)
    fractions = np.arange(first, last) * down % up / up
    distances = np.arange(-radius, radius + 1) - fractions[:, None]
    inside = np.maximum(0.0, 1 - (distances * cutoff / _ZERO_CROSSINGS) ** 2)
    weights = np.sinc(cutoff * distances) * np.i0(_KAISER_BETA * np.sqrt(inside)) * (inside > 0)
    # Each sums to 1, so that a constant stays the same constant in every phase.
    kernels: Samples = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    kernels.flags.writeable = False  # the cache returns the same array again
    return kernels


def log_mel(
    samples: Samples,
    rate: int,
    *,
    bands: int = 80,
    window_ms: float = 25.0,
    hop_ms: float = 1000 * HOP_SECONDS,
    pause: Pause | None = None,
) -> Features:
    """Return the logarithm of the power in mel bands from 0 Hz to half the rate, at least 1e-10, in each frame.

    Frame t is the periodic Hann window over the samples from t * hop on; the last is filled up with zeros. The bands
    are the defaults of `librosa.filters.mel`: Slaney's scale (`htk=False`), triangles of equal area (`norm="slaney"`).
    """
    size, hop = max(1, round(rate * window_ms / 1000)), max(1, round(rate * hop_ms / 1000))
    window = np.hanning(size + 1)[:-1].astype(np.float32)
    filters = _mel_filters(rate, 1 << (size - 1).bit_length(), bands)
    parts = []
    for frames in _frame_chunks(samples, size, hop):
        parts.append(_log_mel_of_frames(frames * window, filters))
        if pause:
            pause()
    return np.concatenate(parts)


def _frame_chunks(samples: Samples, size: int, hop: int) -> Iterator[Samples]:
    full = max(0, 1 + (len(samples) - size) // hop)  # frames without zeros
    if full:
        frames = np.lib.stride_tricks.sliding_window_view(samples, size)[::hop]
        together = max(1, _CHUNK_VALUES // size)
        yield from (frames[start : start + together] for start in range(0, full, together))
    rest = samples[full * hop :]
    if not full or len(rest) > max(0, size - hop):  # samples that are in no frame yet
        yield np.pad(rest, (0, size - len(rest)))[None]


def _log_mel_of_frames(frames: Samples, filters: npt.NDArray[np.float32]) -> Features:
    spectrum = np.fft.rfft(frames, 2 * (filters.shape[1] - 1)).astype(np.complex64, copy=False)
    power = spectrum.real**2 + spectrum.imag**2
    # Not a product of matrices: on busy cores, the threads of BLAS made it 20 times slower.
    mel = np.einsum("tf,bf->tb", power, filters)
    features: Features = np.log(np.maximum(mel, _LOG_FLOOR))
    return features


@lru_cache(maxsize=16)
def _mel_filters(rate: int, fft_size: int, bands: int) -> npt.NDArray[np.float32]:
    """Return the weights of the frequencies of a spectrum in each band: bands x frequencies."""
    frequencies = np.linspace(0, rate / 2, fft_size // 2 + 1)
    edges = _mel_to_hz(np.linspace(0, _hz_to_mel(rate / 2), bands + 2))
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    areas = (edges[2:, None] - edges[:-2, None]) / 2
    filters = (np.maximum(0, np.minimum(rising, falling)) / areas).astype(np.float32)
    if not filters.any(axis=1).all():
        raise UserError(
            f"{format_count(bands, 'mel band')} are too many for sound at {rate:,} Hz and a spectrum of {fft_size:,} "
            "points: some bands would be empty. Use fewer bands, a higher rate or a longer window."
        )
    filters.flags.writeable = False  # the cache returns the same array again
    return filters


# Slaney's scale: linear up to 1 kHz, which is mel 15, then logarithmic with 27 mel for a factor of 6.4.


def _hz_to_mel(frequency: float) -> float:
    return 3 * frequency / 200 if frequency < 1000 else 15 + 27 * math.log(frequency / 1000) / math.log(6.4)


def _mel_to_hz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(mels < 15, 200 * mels / 3, 1000 * 6.4 ** ((mels - 15) / 27))


def normalise(features: Features) -> Features:
    """Return the features of a recording with each band shifted to mean 0 over time, and all scaled to variance 1.

    Bands keep their relative strengths: those with nothing but noise stay weak. Frames of digital silence, as in padded
    or joined recordings, have no influence on the others; they become as quiet as the quietest of the others.
    """
    loudest = features.max(axis=1, initial=_SILENCE)
    sound = features[(loudest > _SILENCE) & (loudest > loudest.max(initial=_SILENCE) - _RANGE)]
    if not len(sound):
        return np.zeros_like(features)
    mean = sound.mean(axis=0, dtype=np.float64).astype(np.float32)
    deviation = np.float32((sound - mean).std(dtype=np.float64))
    normalised: Features = (np.maximum(features, sound.min(axis=0)) - mean) / np.maximum(deviation, _MIN_DEVIATION)
    return normalised
