"""The learning rate as a function of the step (section 5.3, equation 3)."""

import math
from collections.abc import Callable

from dragoman.recipe import TrainingConfig


def schedule(config: TrainingConfig, width: int) -> Callable[[int], float]:
    """Return the learning rate as a function of the step, counted from 1: a linear warm-up, then a decay."""
    peak = config.rate or (width * config.warmup) ** -0.5
    after_warmup = _DECAYS[config.schedule]

    def rate(step: int) -> float:
        if step < config.warmup:
            return peak * step / config.warmup
        return peak * after_warmup(step, config)

    return rate


def shorten(rate: Callable[[int], float], step: int, last_step: int) -> Callable[[int], float]:
    """Return a schedule that falls linearly from its rate at `step` to zero just after an earlier last step."""
    return lambda now: rate(now) if now <= step else rate(step) * (last_step + 1 - now) / (last_step + 1 - step)


def _inverse_square_root(step: int, config: TrainingConfig) -> float:
    # Equation 3, relative to its peak: d^-½ · min(step^-½, step · warmup^-3/2).
    return math.sqrt(config.warmup / step)


def _linear(step: int, config: TrainingConfig) -> float:
    return 1 - _decay_progress(step, config)


def _cosine(step: int, config: TrainingConfig) -> float:
    return (1 + math.cos(math.pi * _decay_progress(step, config))) / 2


def _constant(_step: int, _config: TrainingConfig) -> float:
    return 1.0


def _decay_progress(step: int, config: TrainingConfig) -> float:
    # From 0 at the end of the warm-up to 1 just after the last step.
    return min(1.0, (step - config.warmup) / max(1, config.steps + 1 - config.warmup))


_DECAYS = {
    "noam": _inverse_square_root,
    "linear": _linear,
    "cosine": _cosine,
    "constant": _constant,
}
