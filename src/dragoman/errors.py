"""Exceptions that the command line shows as a message, without a traceback, and the wording that messages share."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class UserError(Exception):
    """An error that the user can fix: where it is, what was found, what was expected, what to do."""

    exit_code = 2


class TrainingDiverged(UserError):
    """The loss or the gradient norm was not finite in too many consecutive steps."""

    exit_code = 3


class TrainingStopped(UserError):
    """Training was stopped on request after saving, and can be resumed (EX_TEMPFAIL)."""

    exit_code = 75


def format_count(number: float, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1: "1 pair", "2,000 pairs", "1.5 epochs"."""
    digits = f"{number:,}" if isinstance(number, int) else f"{number:,.1f}".removesuffix(".0")
    return f"{digits} {noun}{'' if digits == '1' else 's'}"


def format_duration(seconds: float) -> str:
    """Format a duration as 45 s, 2 min 05 s, 12 min or 3 h 05 min."""
    whole = round(seconds)
    minutes = round(seconds / 60)
    if whole < 90:
        return f"{whole} s"
    if whole < 600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ' Did you mean "x"?' for the most similar known word, or an empty string if none is similar."""
    match = _closest(word, known, cutoff=0.6)
    return f' Did you mean "{match}"?' if match else ""


def did_you_mean_path(path: Path) -> str:
    """Return ' Did you mean "x"?' for a path with a similar name and the same suffix; ".gz" may be missing or added."""
    with suppress(OSError):
        paths = {other.name.removesuffix(".gz"): other for other in path.parent.iterdir()}
        name = path.name.removesuffix(".gz")
        match = _closest(name, (other for other in paths if Path(other).suffix == Path(name).suffix), cutoff=0.7)
        if match and not path.exists():
            return f' Did you mean "{paths[match]}"?'
    return ""


def _closest(word: str, known: Iterable[str], cutoff: float) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, known, n=1, cutoff=cutoff)), None)
