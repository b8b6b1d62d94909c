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
    rows = _text_rows(facts)
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name.replace('_', ' '):<{width}}  {_format_value(value)}")


def _text_rows(facts: dict[str, Any]) -> dict[str, Any]:
    """Merge facts that are read together, and omit unknown ones."""
    rows = {name: value for name, value in facts.items() if value is not None}
    if "best_validation_loss" not in rows:
        rows.pop("best_step", None)
    if "of" in rows:
        rows["steps"] = f"{rows['steps']:,} of {rows.pop('of'):,}"
    averaged = rows.pop("mean_of_steps", [])
    if averaged:
        weights = "the checkpoint at step" if len(averaged) == 1 else "the average of the checkpoints at steps"
        rows["weights"] = f"{weights} {_format_value(averaged)}"
    return rows


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
