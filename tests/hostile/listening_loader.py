"""Load run directories and translate with them in a process that listens to all audit events after a warm-up.

    python listening_loader.py GOOD… -- RUN…

The GOOD ones are loaded and used first. A line is printed for every event that loading the others must not cause: a
file opened outside of the run, a program started, a module imported, a connection, a change.
"""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import dragoman
from dragoman.errors import UserError

SYSTEM_FACTS = ("/proc/meminfo", "/sys/fs/cgroup/memory.max", "/dev/null")
FORBIDDEN = {
    "exec", "compile", "import", "marshal.loads", "pickle.find_class", "subprocess.Popen", "os.system", "os.exec",
    "os.fork", "os.posix_spawn", "os.spawn", "ctypes.dlopen", "os.rename", "os.remove", "os.mkdir", "os.rmdir",
    "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown", "os.putenv", "shutil.rmtree", "shutil.copyfile",
    "tempfile.mkstemp", "webbrowser.open", "urllib.Request",
}  # fmt: skip


class Listener:
    """Notes the events that loading a run must not cause."""

    def __init__(self) -> None:
        self.run: str | None = None
        self.heard: list[str] = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an event, unless no run is being loaded."""
        run, self.run = self.run, None
        if run is None:
            return
        if event in FORBIDDEN or event.startswith("socket."):
            self.heard.append(f"{event} {str(arguments)[:200]}")
        elif event == "open" and not self.is_inside(run, *arguments):
            self.heard.append(f"open {arguments[0]!r}")
        self.run = run

    @staticmethod
    def is_inside(run: str, path: Any, _mode: Any, flags: int | None) -> bool:
        """Return whether a file that is opened is one of the run, or says how much memory there is."""
        if isinstance(path, int) or str(path) in SYSTEM_FACTS:
            return True
        if not os.path.isabs(path):  # noqa: PTH117  it may be bytes
            return bool((flags or 0) & os.O_NOFOLLOW)  # relative to an open directory
        return os.path.realpath(path).startswith(f"{run}/") or os.path.realpath(path) == run


def use(run: Path) -> str:
    """Load a run and predict one line; return what was said."""
    try:
        return str(dragoman.load(run, device="cpu").predict("a b"))
    except UserError as error:
        return str(error)


def main() -> None:
    """Warm up, then listen."""
    warnings.simplefilter("ignore")
    separator = sys.argv.index("--")
    for run in map(Path, sys.argv[1:separator]):
        use(run)
    runs = [Path(name) for name in sys.argv[separator + 1 :]]
    listener = Listener()
    for run in runs:
        listener.run = os.path.realpath(run)
        use(run)
        listener.run = None
        for event in listener.heard:
            print(run.name, event)
        listener.heard.clear()
    print("listened to", len(runs))


if __name__ == "__main__":
    main()
