"""`dragoman verify`: check that a run is complete and unchanged."""

import json
from typing import TYPE_CHECKING

from dragoman.cli.options import JsonObjectOption, RunArgument
from dragoman.cli.progress import print_report, print_stderr
from dragoman.errors import UserError, format_count

if TYPE_CHECKING:
    from dragoman.tasks.verify import CheckedFile


def verify(run: RunArgument, as_json: JsonObjectOption = False) -> None:
    """Check that the files of RUN are those that training wrote, by size and SHA-256, and that its model can be opened.

    The exit code is 2 if a file is missing, was changed, is unknown or is not a regular file. Nothing is written."""
    from dragoman.tasks.verify import verify_run

    result = verify_run(run)
    if as_json:
        print(json.dumps(result.to_json(), ensure_ascii=False, indent=2))
    else:
        _print_files(result.files)
    if not result.has_manifest and not result.problems:
        print_stderr(
            f"{run} has no manifest.json, so changes of its model cannot be seen; versions before 0.3 wrote none."
        )
    if result.problems:
        raise UserError(f"{run}: {format_count(len(result.problems), 'problem')}:\n  " + "\n  ".join(result.problems))
    print_stderr(f"{run} is complete and can be opened.")


def _print_files(files: "list[CheckedFile]") -> None:
    width = max((len(file.path) for file in files), default=0)
    for file in files:
        result = "problem" if file.problem else "unchanged" if file.has_digest else "not listed"
        print_report(f"{file.path:<{width}}  {file.bytes:>14,} bytes  {result}")
