"""How much memory there is, and refusing what would not fit before it is taken."""

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dragoman.errors import UserError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Return the bytes that this process may still take: of the machine, its container and its limits."""
    return min(_limits(), default=None)


def _limits() -> Iterator[int]:
    with suppress(OSError, ValueError, IndexError):
        fields = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
        yield int(fields["MemAvailable"].split()[0]) << 10
    with suppress(OSError, ValueError):  # "max" if there is no limit
        yield int((_CGROUP / "memory.max").read_text()) - int((_CGROUP / "memory.current").read_text())
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space != resource.RLIM_INFINITY:
        yield address_space


def require_memory(needed: int, subject: str) -> None:
    """Raise UserError if `subject` needs more memory than there is."""
    available = available_memory()
    if available is not None and needed > available:
        raise UserError(
            f"{subject} needs {needed / 1e9:,.1f} GB of memory, but {max(0, available) / 1e9:,.1f} GB are available."
        )
