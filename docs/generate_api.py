"""Write docs/api.md: the public Python names with their signatures and docstrings.

Run it with `make docs`; tests/test_docs.py fails if the page is out of date.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, get_overloads, is_typeddict

PAGE = Path(__file__).with_name("api.md")
LINE_WIDTH = 110

OPENING = """\
# Python API

<!-- Written by docs/generate_api.py from the docstrings; change them and run `make docs`. -->

```python
import dragoman

model = dragoman.load("runs/mine")
print(model.translate("A dog runs through the snow."))
```

Everything a program needs is in the package `dragoman`: `load` and `train`, `Recipe` for settings, and `UserError` for
errors that a user can fix. `load` returns an instance of one of the classes below. Names that are not on this page may
change in any release.
"""
SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {  # a function or class, and which of its methods are public
    "Functions": {"dragoman:load": (), "dragoman:plan": (), "dragoman:train": ()},
    "Settings and errors": {"dragoman:Recipe": ("from_toml", "from_table", "to_toml"), "dragoman:UserError": ()},
    "Models": {
        "dragoman.tasks.sequence_model:SequenceModel": (
            "load", "predict", "predict_lines", "search", "score", "inspect",
        ),
        "dragoman.tasks.translate:Translator": ("translate", "translate_lines"),
        "dragoman.tasks.parse:Parser": ("parse",),
        "dragoman.tasks.word_tasks:Pronouncer": ("pronounce",),
        "dragoman.tasks.word_tasks:Inflector": ("inflect",),
        "dragoman.tasks.generate:LanguageModel": ("generate", "stream", "perplexity"),
        "dragoman.tasks.transcribe:Transcriber": ("transcribe", "transcribe_segments", "inspect"),
    },
    "Options and results": {
        "dragoman.tasks.sequence_model:SearchOptions": (),
        "dragoman.decoding.sampling_options:SamplingOptions": (),
        "dragoman.tasks.sequence_model:Prediction": (),
        "dragoman.tasks.generate:GenerationOptions": (),
        "dragoman.tasks.generate:Continuation": (),
        "dragoman.tasks.transcribe:Sound": (),
        "dragoman.tasks.transcribe:TranscriptSegment": (),
        "dragoman.tasks.transcribe:TimedWord": (),
    },
}  # fmt: skip


def page() -> str:
    """Return the current page."""
    parts = [OPENING]
    for title, names in SECTIONS.items():
        parts += [f"## {title}\n", *(entry(path, methods) for path, methods in names.items())]
    return "\n".join(parts).rstrip("\n") + "\n"


def entry(path: str, methods: Iterable[str]) -> str:
    """Return the part of the page about one function or class."""
    module, name = path.split(":")
    value = getattr(import_module(module), name)
    label = f"dragoman.{name}" if module == "dragoman" else name
    lines = [f"### {label}\n", signature(value, label), description(value), fields(value)]
    lines += [method(name, inspect.getattr_static(value, name)) for name in methods]
    return "\n".join(line for line in lines if line)


def fields(value: Any) -> str:
    """Return the fields of a dataclass or the keys of a typed dictionary."""
    names = getattr(value, "__dataclass_fields__", None) or (
        getattr(value, "__annotations__", ()) if is_typeddict(value) else ()
    )
    return f"Fields: {', '.join(f'`{name}`' for name in names)}.\n" if names else ""


def method(name: str, value: Any) -> str:
    """Return the part about one method."""
    function = value.__func__ if isinstance(value, classmethod) else value
    if function.__name__ != name:
        return f"#### {name}\n\nThe same as `{function.__qualname__}`.\n"
    return f"#### {name}\n\n{signature(function, name)}\n{description(function)}"


def signature(value: Any, label: str) -> str:
    """Return the signatures of a function, or of its overloads, as a block of code; nothing for a class."""
    if inspect.isclass(value):
        return ""
    shown = [format_signature(label, function) for function in get_overloads(value) or [value]]
    return "```python\n" + "\n".join(shown) + "\n```\n"


def format_signature(label: str, function: Callable[..., Any]) -> str:
    """Return one signature, with one parameter per line if it is long."""
    whole = inspect.signature(function)
    parameters = [parameter for name, parameter in whole.parameters.items() if name not in ("self", "cls")]
    text = shorten(f"{label}{whole.replace(parameters=parameters)}")
    if len(text) <= LINE_WIDTH:
        return text
    first = next((index for index, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY), None)
    lines = [f"    {parameter}," for parameter in parameters]
    if first is not None:
        lines.insert(first, "    *,")
    result = str(whole.replace(parameters=[])).removeprefix("()")
    return shorten("\n".join([f"{label}(", *lines, f"){result}"]))


def shorten(text: str) -> str:
    """Return a signature without module paths, addresses and quotes."""
    text = re.sub(r"<function (\w+) at 0x\w+>", r"\1", text)
    text = re.sub(r"\b(?:[a-z_0-9]+\.)+(?=[A-Z])", "", text)
    text = re.sub(r"\*<class '(\w+)'>", r"Unpack[\1]", text)
    return re.sub(r"-> '(\w+)'", r"-> \1", text)


def description(value: Any) -> str:
    """Return a docstring as paragraphs."""
    return f"{inspect.cleandoc(value.__doc__ or '')}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
