"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory written by `dragoman train`.")]
BeamOption = Annotated[int | None, typer.Option(min=1, max=512, help="Beam width; 1 is greedy search.")]
LengthPenaltyOption = Annotated[
    float | None, typer.Option(min=0.0, max=5.0, help="Length penalty α; larger values prefer longer output.")
]
PrecisionOption = Annotated[str | None, typer.Option(help="Precision of the weights: float32, or int8 (faster).")]
NoSplitOption = Annotated[
    bool,
    typer.Option("--no-split", help="Translate all sentences of a line at once instead of one after the other."),
]
ShortlistOption = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist", help="Restrict the output vocabulary to the shortlist from `dragoman shortlist`."
    ),
]
DeviceOption = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or mps.")]
PresetOption = Annotated[
    str | None, typer.Option(help="Model size: tiny, small, base or big. Default: tiny, or the task's own preset.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="PART.KEY=VALUE", help="Override one recipe setting; repeatable.")
]
NBestOption = Annotated[int, typer.Option(min=1, max=512, help="Number of outputs per line, best first.")]
ScoresOption = Annotated[bool, typer.Option("--scores", help="Print the score and a tab before each output.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON list per input line: its outputs, with scores and tokens.")
]
LineByLineOption = Annotated[
    bool, typer.Option("--line-by-line", help="Process each line before reading the next one (slower for many lines).")
]
LabelOption = Annotated[
    str | None, typer.Option(help="Label to use for all lines, if the model was trained with labels.")
]
