"""How much memory there is, and refusing what would not fit before it is taken."""

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dragoman.errors import UserError

_MEMINFO = Path("/proc/meminfo")
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def _available_bytes() -> Iterator[int]:
    # of the machine, of a container and of this process
    with suppress(OSError, ValueError, LookupError):
        fields = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
        yield int(fields["MemAvailable"].split()[0]) << 10
    with suppress(OSError, ValueError):  # "max" if there is no limit
        yield int(_CONTAINER_LIMIT.read_text())
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space != resource.RLIM_INFINITY:
        yield address_space


def require_memory(needed: int, subject: str) -> None:
    """Raise UserError if `subject` needs more memory than there is."""
    available = min(_available_bytes(), default=None)
    if available is not None and needed > available:
        raise UserError(
            f"{subject} needs {needed / 1e9:,.1f} GB of memory, but {max(0, available) / 1e9:,.1f} GB are available."
        )
