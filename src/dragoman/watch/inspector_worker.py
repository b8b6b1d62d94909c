"""The process that looks inside checkpoints: `python -m dragoman.watch.inspector_worker RUN`, started on demand.

A question is a JSON object on a line of the standard input, its answer one on the standard output. It has torch and the
model, works behind everybody else on the machine, and ends when whoever started it does.
"""

import json
import os
import sys
import traceback
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from dragoman.checkpoints import newest_checkpoint
from dragoman.errors import UserError
from dragoman.run import Run
from dragoman.tasks.head_cache import cached_head_history, cached_head_report, identify_weights, saved_checkpoints
from dragoman.tasks.sequence_model import SequenceModel, load
from dragoman.viewer.document import viewer_document

_MAX_PIECES = 120  # pieces on either side: more make matrices too large to send and to draw


def _inspect(run: Run, request: dict[str, Any]) -> dict[str, Any]:
    """Show one translation from inside, as the newest checkpoint makes it, or the one that was asked for."""
    step = request.get("checkpoint")
    if step is None:
        place, _ = newest_checkpoint(run.checkpoints_dir)
        step = int(place.name) if place else None
    translator = _load_checkpoint(run, step, identify_weights(run, step)[1])
    _check_length(len(translator.source_tokens(translator.task.to_model_input(request["text"]))))
    options = {name: request[name] for name in ("prefix", "without", "trace") if request.get(name)}
    record = translator.inspect(request["text"], **options)
    _check_length(len(record.target_pieces))
    found = {"checkpoint": step, "report": cached_head_report(run, step) or cached_head_report(run)}
    return {**viewer_document(record), **found, "history": cached_head_history(run) or None}


@lru_cache(maxsize=2)
def _load_checkpoint(run: Run, step: int | None, _weights: str) -> SequenceModel:
    """Load a checkpoint, once for each time it was written."""
    return load(run, device="cpu", checkpoint=step)


def _check_length(pieces: int) -> None:
    """Refuse a sentence that cannot be shown."""
    if pieces > _MAX_PIECES:
        raise UserError(f"The sentence has {pieces} pieces; at most {_MAX_PIECES} can be shown. Give a shorter one.")


def _answer(run: Run, request: dict[str, Any]) -> dict[str, Any]:
    """Answer one question; what goes wrong is an answer too."""
    try:
        if request.get("checkpoints"):
            return {"checkpoints": saved_checkpoints(run)}
        return {"look": _inspect(run, request)}
    except UserError as error:
        return {"error": str(error)}
    except Exception:
        traceback.print_exc()
        return {"error": "The look failed; the checkpoint may just have been replaced. Try again."}


def main(folder: str) -> None:
    """Answer questions until there are no more."""
    os.nice(19)
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed is no answer
    run = Run(Path(folder))
    for line in sys.stdin:
        print(json.dumps(_answer(run, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
