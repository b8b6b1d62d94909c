"""`dragoman info`: describe a run directory, or the machine."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman.cli.options import JsonObjectOption
from dragoman.cli.progress import print_report
from dragoman.errors import UserError


def info(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="A run directory written by `dragoman train`.")
    ] = None,
    system: Annotated[
        bool, typer.Option("--system", help="Describe this machine and installation instead: versions, kernels, cores.")
    ] = False,
    as_json: JsonObjectOption = False,
) -> None:
    """Describe the model in RUN: its size, its training data and its training progress."""
    if (run is None) != system:
        raise UserError("Give either a run, as in `dragoman info runs/mine`, or --system.")
    facts = _system_facts() if run is None else _run_facts(run)
    if as_json:
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    rows = _text_rows(facts)
    width = max(map(len, rows))
    for name, value in rows.items():
        print_report(f"{name.replace('_', ' '):<{width}}  {_format_value(value)}")


def _run_facts(run: Path) -> dict[str, Any]:
    from dragoman.tasks.info import run_info

    return run_info(run)


def _system_facts() -> dict[str, Any]:
    """Return what a report of a fault or of a speed should contain."""
    import torch

    from dragoman.bench.machine import describe_machine
    from dragoman.kernels import describe_kernels
    from dragoman.processes import available_cores

    machine = describe_machine(torch.get_num_threads(), available_cores())
    return {
        **machine.versions,
        "system": machine.system,
        "processor": machine.processor,
        "instruction_sets": list(machine.cpu_flags),
        "kernels": describe_kernels(),
        "threads": machine.threads,
        "cores": machine.cores,
    }


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
