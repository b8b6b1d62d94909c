"""What the service grants to anyone who can reach it: every bound in one place, shown by `/v1/info`."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from dragoman.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Limits:
    """Bounds on what a request may ask for, how long anything may take, and how much may be under way at once."""

    body_bytes: int = 256 << 10
    answer_bytes: int = 4 << 20
    text_characters: int = 5000  # of one text
    texts: int = 32  # in one request
    beam: int = 8  # and as many alternatives
    waiting: int = 64  # requests admitted and not yet answered
    waiting_characters: int = 320_000  # in all of them together
    per_client: int = 8  # of them, from one address
    connections: int = 256
    header_seconds: float = 5.0
    body_seconds: float = 10.0
    idle_seconds: float = 5.0  # between two requests on one connection
    write_seconds: float = 10.0  # for a client to take what was written to it
    deadline_seconds: float = 30.0  # from the whole request to the whole answer
    look_pieces: int = 120  # on either side of a sentence whose attention is shown

    def with_changes(self, changes: Iterable[str]) -> "Limits":
        """Return the limits with changes like "waiting=128"."""
        changed = self
        for change in changes:
            changed = replace(changed, **_parse_change(change))  # type: ignore[arg-type]
        return changed


_LIMIT_TYPES = {field.name: field.type for field in fields(Limits)}


def _parse_change(change: str) -> dict[str, float]:
    """Read one change, or say what is wrong with it."""
    name, _, value = change.partition("=")
    if name not in _LIMIT_TYPES:
        raise UserError(f'--limit {change}: no limit is called "{name}".{did_you_mean(name, list(_LIMIT_TYPES))}')
    whole = isinstance(getattr(Limits(), name), int)
    try:
        number = int(value) if whole else float(value)
    except ValueError:
        number = 0
    if not 0 < number < 1 << 40:
        raise UserError(f"--limit {change}: {name} is {'a whole number' if whole else 'a number'} above 0.")
    return {name: number}
