"""The process that inspects checkpoints: `python -m dragoman.watch.inspector_worker FD RUN`, started on demand.

It loads torch and the model, has the lowest priority, and ends with the process that started it.
"""

import os
import sys
import traceback
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from dragoman.checkpoints import newest_checkpoint
from dragoman.errors import UserError
from dragoman.processes import parent_socket
from dragoman.run import Run
from dragoman.server.inspection import inspect_translation
from dragoman.streams import protect_streams
from dragoman.tasks.head_cache import cached_head_history, cached_head_report, identify_weights, saved_checkpoints
from dragoman.tasks.sequence_model import SequenceModel, load
from dragoman.viewer.document import viewer_document

_MAX_TOKENS = 120  # of a source or target whose attention is shown
_MAX_POSITIONS = 400  # of a recording


def _inspect(run: Run, request: dict[str, Any]) -> dict[str, Any]:
    """Return the viewer document of a text for the requested checkpoint, or the newest one."""
    step = request.get("checkpoint")
    if step is None:
        checkpoint, _ = newest_checkpoint(run.checkpoints_dir)
        step = int(checkpoint.name) if checkpoint else None
    translator = _load_checkpoint(run, step, identify_weights(run, step)[1])
    inspect = _inspect_recording if translator.task.reads_signals else _inspect_text
    document = inspect(translator, request)
    reports = {"checkpoint": step, "report": cached_head_report(run, step) or cached_head_report(run)}
    return {**document, **reports, "history": cached_head_history(run) or None}


def _inspect_text(translator: SequenceModel, request: dict[str, Any]) -> dict[str, Any]:
    return inspect_translation(translator, request, _MAX_TOKENS)


def _inspect_recording(model: SequenceModel, request: dict[str, Any]) -> dict[str, Any]:
    path = model.task.find_source(request["text"], model.recipe.data)
    source = model.inspected_source(path, "")
    if source.batch.positions[0] > _MAX_POSITIONS:
        longest = source.seconds * _MAX_POSITIONS / int(source.batch.positions[0])
        raise UserError(f"The recording has {source.seconds:.1f} s; attention is shown for at most {longest:.0f} s.")
    heads = [(kind, layer, head) for kind, layer, head in request["ablate_heads"]]
    record = model.inspect(path, prefix=request["prefix"], ablate_heads=heads, trace=request["trace"])
    return viewer_document(record)


@lru_cache(maxsize=2)
def _load_checkpoint(run: Run, step: int | None, _weights: str) -> SequenceModel:
    """Load a checkpoint; the cache is keyed by its weights, which may be replaced."""
    return load(run, device="cpu", checkpoint=step)


def _answer(run: Run, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request; errors are answers too."""
    try:
        if request.get("checkpoints"):
            return {"checkpoints": saved_checkpoints(run)}
        return {"record": _inspect(run, request)}
    except UserError as error:
        return {"error": str(error)}
    except Exception:
        traceback.print_exc()
        return {"error": "The inspection failed; the checkpoint may have been replaced. Try again."}


def main(descriptor: str, folder: str) -> None:
    """Answer requests until the parent closes its end of the socket."""
    os.nice(19)
    torch.set_num_threads(1)
    channel, run = parent_socket(descriptor), Run(Path(folder))
    for requests in channel.receive_all():
        for request in requests:
            channel.send(_answer(run, request))


if __name__ == "__main__":
    protect_streams()
    main(*sys.argv[1:])
