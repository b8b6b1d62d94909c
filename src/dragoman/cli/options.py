"""Arguments and options that several commands share."""

import csv
from pathlib import Path
from typing import Annotated

import typer

from dragoman.errors import UserError, did_you_mean
from dragoman.presets import TASKS

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory written by `dragoman train`.")]
BeamOption = Annotated[int | None, typer.Option(min=1, max=512, help="Beam width; 1 is greedy search.")]
LengthPenaltyOption = Annotated[
    float | None, typer.Option(min=0.0, max=5.0, help="Length penalty α; larger values prefer longer output.")
]
PrecisionOption = Annotated[str | None, typer.Option(help="Precision of the weights: float32, or int8 (faster).")]
NoSplitOption = Annotated[
    bool,
    typer.Option("--no-split", help="Translate each line as a whole instead of sentence by sentence."),
]
ShortlistOption = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist", help="Restrict the output vocabulary to the shortlist from `dragoman shortlist`."
    ),
]
DeviceOption = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or mps.")]
PresetOption = Annotated[
    str | None, typer.Option(help="Model size: tiny, small, base or big. Default: planned from the data and the time.")
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

SourceOption = Annotated[str | None, typer.Option(help="Source text, one sentence per line; may be gzipped (.gz).")]
TargetOption = Annotated[str | None, typer.Option(help="Target text, aligned line by line.")]
PairsOption = Annotated[
    str | None, typer.Option(help="Source and target in one file: tab-separated text, CSV, JSONL or TMX.")
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE,TARGET",
        help="Source and target in a file of pairs: names of columns or keys, language codes, or 1,2.",
    ),
]
ValidSourceOption = Annotated[str | None, typer.Option(help="Source text of the validation set.")]
ValidTargetOption = Annotated[str | None, typer.Option(help="Target text of the validation set.")]
ValidPairsOption = Annotated[str | None, typer.Option(help="Validation set in one file of pairs.")]
RecipeArgument = Annotated[
    Path | None, typer.Argument(metavar="[RECIPE]", help="Recipe file; `dragoman plan` and `dragoman init` print one.")
]
TaskOption = Annotated[
    str | None, typer.Option(help="Task: translate, pronounce, inflect, parse, generate or transcribe.")
]
FileOption = Annotated[
    str | None, typer.Option(help="Lexicon, treebank, text or manifest of recordings, for tasks other than translate.")
]
ValidFileOption = Annotated[str | None, typer.Option(help="Validation file for --file.")]
RunOption = Annotated[str | None, typer.Option(help="Run directory to write.")]
StepsOption = Annotated[
    int | None, typer.Option(min=1, help="Number of updates; all other settings are planned for it.")
]
MinutesOption = Annotated[
    float | None,
    typer.Option(min=0, help="Time limit in minutes, from start to score; the training is planned to end with it."),
]
SeedOption = Annotated[
    int | None, typer.Option(min=0, help="Random seed; the same seed on the same machine gives the same result.")
]
JsonObjectOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def parse_columns(columns: str | None) -> tuple[str, str] | None:
    """Return the two names of --columns; a name that contains a comma is in quotation marks."""
    if columns is None:
        return None
    names = [name.strip() for name in next(csv.reader([columns], skipinitialspace=True), [])]
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise UserError(f"--columns {columns}: expected two different names, as in --columns en,fr.")
    return names[0], names[1]


def check_task(name: str) -> None:
    """Raise a UserError for an unknown task."""
    if name not in TASKS:
        raise UserError(f'Unknown task "{name}"; expected one of {", ".join(TASKS)}.{did_you_mean(name, TASKS)}')
