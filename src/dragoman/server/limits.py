"""Limits of the service: what a request may ask for, how long anything may take, how much may run at once."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal

from dragoman.errors import UserError, did_you_mean
from dragoman.server.old_names import OLD_LIMITS

ErrorFormat = Literal["dragoman", "openai"]


@dataclass(frozen=True)
class Limits:
    """All limits of a server; `/v1/info` shows them and `--limit NAME=VALUE` changes them."""

    body_bytes: int = 256 << 10
    response_bytes: int = 4 << 20
    text_characters: int = 5000  # of one text
    texts: int = 32  # per request
    beam: int = 8  # also of n_best
    request_work: int = 250_000  # tokens times beam width, and details
    sentence_tokens: int = 1024  # that a model reads at once
    queued_requests: int = 64  # admitted and not yet answered
    queued_work: int = 2_000_000  # in all of them together
    requests_per_client: int = 8  # queued, from one address
    connections: int = 2048
    header_seconds: float = 5.0
    body_seconds: float = 10.0
    idle_seconds: float = 5.0  # between two requests on one connection
    write_seconds: float = 10.0  # for a client to read what was written to it
    deadline_seconds: float = 30.0  # from the complete request to the complete response
    recording_seconds: float = 600.0  # of sound in one request
    audio_bytes: int = 25 << 20  # of the body of a request with a recording
    audio_body_seconds: float = 60.0  # for this body to arrive
    audio_deadline_seconds: float = 120.0  # from the complete request with a recording to the complete response
    stored_audio_bytes: int = 512 << 20  # in the temporary files of all requests together
    attention_tokens: int = 120  # of a source or target whose attention is shown
    recipe_beam: int = 32  # [decoding] beam of a recipe
    recipe_extra_length: int = 500  # [decoding] extra_length of a recipe
    recipe_batch_tokens: int = 16_384  # [decoding] batch_tokens of a recipe

    def with_changes(self, changes: Iterable[str]) -> "Limits":
        """Return the limits with changes such as "queued_requests=128"."""
        changed = self
        for change in changes:
            changed = replace(changed, **_parse_change(change))  # type: ignore[arg-type]
        return changed


@dataclass(frozen=True)
class RouteLimits:
    """The limits of one route, which the middleware enforces before and while the application runs."""

    body_bytes: int
    body_seconds: float
    deadline_seconds: float
    is_queued: bool = False  # needs the worker: counts as a queued request
    accepts_api_key: bool = False  # the token may be sent as `api_key` in the query or in the body
    error_format: ErrorFormat = "dragoman"  # of the JSON of error responses
    is_stored: bool = False  # the body goes to a file while it arrives, and is never in memory as a whole

    @classmethod
    def default(cls, limits: Limits) -> "RouteLimits":
        """Return the limits of a route that sets none of its own."""
        return cls(limits.body_bytes, limits.body_seconds, limits.deadline_seconds)

    @classmethod
    def for_audio(cls, limits: Limits, error_format: ErrorFormat = "dragoman") -> "RouteLimits":
        """Return the limits of a route that receives recordings."""
        return cls(
            limits.audio_bytes,
            limits.audio_body_seconds,
            limits.audio_deadline_seconds,
            is_queued=True,
            is_stored=True,
            error_format=error_format,
        )


_NAMES = [field.name for field in fields(Limits)]


def _parse_change(change: str) -> dict[str, float]:
    name, _, value = change.partition("=")
    name = OLD_LIMITS.get(name, name)
    if name not in _NAMES:
        raise UserError(f'--limit {change}: unknown limit "{name}".{did_you_mean(name, _NAMES)}')
    is_integer = isinstance(getattr(Limits(), name), int)
    try:
        number = int(value) if is_integer else float(value)
    except ValueError:
        number = 0
    if not 0 < number < 1 << 40:
        raise UserError(f"--limit {change}: {name} must be a positive {'integer' if is_integer else 'number'}.")
    return {name: number}
