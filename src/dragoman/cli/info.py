"""`dragoman info`: describe a run directory."""

import json
from typing import Any

from dragoman.cli.options import JsonObjectOption, RunArgument


def info(run: RunArgument, as_json: JsonObjectOption = False) -> None:
    """Describe the model in RUN: its size, its training data and its training progress."""
    from dragoman.tasks.info import run_info

    facts = run_info(run)
    if as_json:
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<{width}}  {_format_value(value)}")


def _format_value(value: Any) -> str:
    """Write a value for people."""
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
