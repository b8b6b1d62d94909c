"""The learning rate as a function of the step (section 5.3, equation 3)."""

import math
from collections.abc import Callable

from dragoman.recipe import Training


def schedule(plan: Training, width: int) -> Callable[[int], float]:
    """Return the learning rate of each step, counted from 1: a straight way up to the peak, then what the plan says."""
    peak = plan.rate or (width * plan.warmup) ** -0.5
    after_warmup = AFTER_WARMUP[plan.schedule]

    def rate(step: int) -> float:
        if step < plan.warmup:
            return peak * step / plan.warmup
        return peak * after_warmup(step, plan)

    return rate


def inverse_square_root(step: int, plan: Training) -> float:
    """Equation 3, written from its peak: d^-½ · min(step^-½, step · warmup^-3/2)."""
    return math.sqrt(plan.warmup / step)


def linear(step: int, plan: Training) -> float:
    """Fall in a straight line to zero at the last step."""
    return 1 - done(step, plan)


def cosine(step: int, plan: Training) -> float:
    """Fall along half a cosine to zero at the last step."""
    return (1 + math.cos(math.pi * done(step, plan))) / 2


def constant(_step: int, _plan: Training) -> float:
    """Stay at the peak."""
    return 1.0


def done(step: int, plan: Training) -> float:
    """Return how much of the way from the end of the warm-up to just after the last step lies behind."""
    return min(1.0, (step - plan.warmup) / max(1, plan.steps + 1 - plan.warmup))


AFTER_WARMUP = {"noam": inverse_square_root, "linear": linear, "cosine": cosine, "constant": constant}
