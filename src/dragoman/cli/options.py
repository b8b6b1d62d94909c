"""Arguments and options that several verbs share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, as `dragoman train` makes it.")]
BeamOption = Annotated[int | None, typer.Option(min=1, max=512, help="Hypotheses kept at each step; 1 is greedy.")]
LengthPenaltyOption = Annotated[float | None, typer.Option(min=0.0, max=5.0, help="Preference for longer output (α).")]
PrecisionOption = Annotated[str | None, typer.Option(help="Of the weights: float32, or int8, which is faster.")]
ShortlistOption = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist", help="Rate likely pieces only, by what `dragoman shortlist` has learned."
    ),
]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda or mps.")]
PresetOption = Annotated[
    str | None, typer.Option(help="A named model size: tiny, small, base or big; if unset, tiny, or the task's own.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="PART.KEY=VALUE", help="Change one setting; may be repeated.")
]
NBestOption = Annotated[int, typer.Option(min=1, max=512, help="Answers to each line, the best first.")]
ScoresOption = Annotated[bool, typer.Option("--scores", help="Put the score and a tab before each answer.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="A JSON list a line: the answers to it, with scores and pieces.")
]
LineByLineOption = Annotated[
    bool, typer.Option("--line-by-line", help="Answer each line before reading the next; slower in bulk.")
]
LabelOption = Annotated[
    str | None, typer.Option(help="Of a model for several languages or kinds: which one all lines are of.")
]
