"""What can be measured of a recording without a model: its length, level, clipping and silence.

A recording is read block by block; only its levels, 100 per second, are kept until its end.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from dragoman.data.silence import WINDOWS_PER_SECOND, find_silence, level_range, regroup, smooth_levels, window_levels
from dragoman.data.sound_files import Samples, SoundStream

_WINDOWS_TOGETHER = 1000
_FULL_SCALE = 0.99  # of 8-bit files too, whose largest sample is 127 / 128
_FLAT = 1e-3  # difference of neighbouring samples; even a loud low tone changes more between two


@dataclass(frozen=True, slots=True)
class RecordingMeasures:
    """The measures of one recording."""

    rate: int
    channels: int
    seconds: float
    peak: float  # of the samples, where 1 is full scale
    clipped_share: float  # of the samples: at full scale, as the one before
    level_range: float  # dB, from the quietest to the loudest parts; near 0 for silence, noise or a tone
    silent_share: float  # of the time
    silent_start: float  # seconds
    silent_end: float
    digest: bytes  # of rate and samples: equal for equal sound in another kind of file


def measure_recording(sound: SoundStream) -> RecordingMeasures:
    """Read a recording to its end and measure it; raise a UserError if it cannot be read."""
    window = max(1, sound.rate // WINDOWS_PER_SECOND)
    digest = hashlib.blake2b(str(sound.rate).encode(), digest_size=16)
    levels = []
    length = clipped = 0
    peak, last = 0.0, np.zeros(1, np.float32)
    for samples in regroup(sound, window * _WINDOWS_TOGETHER):
        digest.update(samples.tobytes())
        levels.append(window_levels(samples, window).astype(np.float32))
        length += len(samples)
        clipped += _count_clipped(np.concatenate([last, samples]))
        peak, last = max(peak, float(np.abs(samples).max())), samples[-1:]
    smooth = smooth_levels(np.concatenate(levels).astype(np.float64))
    silence = find_silence(smooth)
    loud = np.flatnonzero(~silence)
    seconds_per_window = window / sound.rate
    return RecordingMeasures(
        rate=sound.rate,
        channels=sound.channels,
        seconds=length / sound.rate,
        peak=peak,
        clipped_share=clipped / length,
        level_range=level_range(smooth),
        silent_share=float(silence.mean()) if len(silence) else 0.0,
        silent_start=int(loud[0]) * seconds_per_window if len(loud) else 0.0,
        silent_end=int(len(silence) - 1 - loud[-1]) * seconds_per_window if len(loud) else 0.0,
        digest=digest.digest(),
    )


def _count_clipped(samples: Samples) -> int:
    """Return how many samples after the first are at full scale like the one before them."""
    flat = np.abs(np.diff(samples)) < _FLAT
    return int(np.count_nonzero(flat & (np.abs(samples[1:]) >= _FULL_SCALE)))
