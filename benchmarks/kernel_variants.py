"""How fast is each variant of the compiled kernels, against -march=native and against none?

    python benchmarks/kernel_variants.py [--size tiny --rounds 9 --threads 1] [--output kernel_variants.json]

Needs a checkout with compiled kernels (`make kernels`) and a compiler. A copy of the package is compiled with
-march=native into a temporary directory. Every variant that this processor runs, the copy and a process without kernels
are started together and take turns in every round, so that each round gives ratios under the same load: training
updates in float32 and, if the processor has it, in bfloat16; decoding with beam 1 and 4, in float32 and int8. Prints
the times as multiples of those of -march=native (above 1: slower), median and range over the rounds, and writes one
JSON record. Run it on an idle machine.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from setup import Variant, compile_library, find_compiler  # noqa: E402

import dragoman  # noqa: E402
from dragoman.bench.config import BenchmarkConfig, endless_training_recipe, recipe_for_size  # noqa: E402
from dragoman.bench.data import learn_tokenizers, load_training_text, tokenize_text, write_random_run  # noqa: E402
from dragoman.bench.decoding import OUTPUT_TOKENS, SOURCE_TOKENS, fixed_length_sentences  # noqa: E402
from dragoman.bench.dragoman_engine import DragomanDecoder  # noqa: E402
from dragoman.bench.machine import describe_machine  # noqa: E402
from dragoman.bench.stats import SampleStats, paired_ratio  # noqa: E402
from dragoman.bench.timing import TimedDecoder  # noqa: E402
from dragoman.bench.training import TimedTraining  # noqa: E402
from dragoman.bench.workers import EngineProcess, EngineSpec, engine_spec  # noqa: E402
from dragoman.kernels import LIST_NAME, SETTING, built_variants, source_digest  # noqa: E402
from dragoman.processes import available_cores  # noqa: E402
from dragoman.processor import instruction_sets  # noqa: E402
from dragoman.tasks.translate import Translator  # noqa: E402

NATIVE, NONE = "-march=native", "off"
BFLOAT16_SETS = {"avx512_bf16", "amx_bf16", "bf16"}


def native_package(folder: Path) -> None:
    """Write a copy of the package whose only kernels are compiled with -march=native."""
    package = shutil.copytree(Path(dragoman.__file__).parent, folder / "dragoman")
    libraries = package / "native" / "libraries"
    shutil.rmtree(libraries, ignore_errors=True)
    libraries.mkdir()
    compiler, library = find_compiler(), libraries / "kernels-native.so"
    assert compiler, "a compiler is needed to compare with"
    failure = compile_library(compiler, Variant("native", "", (NATIVE,), ()), library)
    assert failure is None, failure
    content = library.read_bytes()
    facts = {"bytes": len(content), "sha256": sha256(content).hexdigest(), "needs": []}
    entry = {"name": "native", "file": library.name, **facts}
    listed = {"sources": source_digest(), "compiler": "this script", "variants": [entry]}
    (libraries / LIST_NAME).write_text(json.dumps(listed))


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables for the processes that are started in this block."""
    before = dict(os.environ)
    os.environ.update(variables)
    yield
    os.environ.clear()
    os.environ.update(before)


def workloads(folder: Path, size: str, config: BenchmarkConfig) -> dict[str, tuple[EngineSpec, list[tuple[Any, ...]]]]:
    """Return the engine of each measurement, and the arguments of its turns: of the warm-up, and of the others."""
    recipe, text = recipe_for_size(size, config), load_training_text(config)
    tokenizers = learn_tokenizers(text, recipe)
    corpus = tokenize_text(folder / "text", text, recipe, tokenizers)
    lengths = {"decoding": {"extra_length": OUTPUT_TOKENS - SOURCE_TOKENS}}
    run = write_random_run(folder / size, recipe_for_size(size, config, overrides=lengths), tokenizers)
    sentences = fixed_length_sentences(text, Translator.load(run, device="cpu"), config)
    measured: dict[str, tuple[EngineSpec, list[tuple[Any, ...]]]] = {}
    for precision in ("float32", *(["bfloat16"] if instruction_sets() & BFLOAT16_SETS else [])):
        endless = endless_training_recipe(recipe, config, precision).model_dump(mode="json")
        engine = engine_spec(TimedTraining, "dragoman", endless, corpus.describe())
        measured[f"training, {precision}"] = engine, [(1,), (max(1, config.singles // 10),)]
    for precision in ("float32", "int8"):
        decoder = engine_spec(DragomanDecoder, str(run.folder), config.threads, precision)
        for beam in (1, 4):
            engine = engine_spec(TimedDecoder, decoder, sentences.sources, config.singles)
            measured[f"decoding, {precision}, beam {beam}"] = engine, [("warm-up", beam), ("bulk", beam)]
    return measured


def seconds_per_unit(result: dict[str, Any]) -> float:
    """Return the seconds of a turn, for each target token in training, whose batches have different sizes."""
    return result["seconds"] / result["tokens"] if "tokens" in result else sum(result["seconds"])


def measure(
    engine: EngineSpec, turns: list[tuple[Any, ...]], candidates: dict[str, dict[str, str]], rounds: int
) -> dict[str, SampleStats]:
    """Start a process for each candidate and let them take turns; return the seconds of each."""
    with ExitStack() as stack:
        processes = {}
        for name, variables in candidates.items():
            with environment(**variables):
                processes[name] = EngineProcess(f"dragoman {name}", engine, pause_seconds=0.1)
            stack.callback(processes[name].stop)
        for process in processes.values():
            process.receive()
            process.run_turn(*turns[0])
        seconds: dict[str, list[float]] = {name: [] for name in candidates}
        for index in range(rounds):
            order = [*processes.items()]
            for name, process in order[index % len(order) :] + order[: index % len(order)]:
                seconds[name].append(seconds_per_unit(process.run_turn(*turns[1])))
    return {name: SampleStats.from_values(values) for name, values in seconds.items()}


def main(
    size: Annotated[str, typer.Option(help="Model size, as of `dragoman bench --size`.")] = "tiny",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; in each every candidate has a turn.")] = 9,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each candidate.")] = 1,
    sentences: Annotated[int, typer.Option(min=1, help="Sentences per turn of decoding.")] = 400,
    updates: Annotated[int, typer.Option(min=1, help="Updates per turn of training.")] = 10,
    output: Annotated[Path, typer.Option(help="JSON file to write.")] = Path("kernel_variants.json"),
) -> None:
    """Compare the variants of the compiled kernels."""
    config = BenchmarkConfig(threads=threads, sentences=sentences, singles=10 * updates)
    runnable = [variant.name for variant in built_variants() if not variant.missing_sets()]
    assert runnable, "there are no compiled kernels: run `make kernels`"
    record: dict[str, Any] = {"machine": str(describe_machine(threads, available_cores())), "size": size}
    print(f"{record['machine']}\n{size}, {rounds} rounds; time as a multiple of that with {NATIVE}\n")
    with tempfile.TemporaryDirectory(prefix="dragoman-kernels-") as folder:
        native_package(Path(folder, "copy"))
        package = str(Path(dragoman.__file__).parent.parent)
        candidates = {NATIVE: {SETTING: "native", "PYTHONPATH": str(Path(folder, "copy"))}}
        candidates |= {name: {SETTING: name, "PYTHONPATH": package} for name in (*runnable, NONE)}
        for title, (engine, turns) in workloads(Path(folder), size, config).items():
            seconds = measure(engine, turns, candidates, rounds)
            ratios = {name: paired_ratio(stats, seconds[NATIVE]) for name, stats in seconds.items()}
            columns = "  ".join(f"{name} {stats:.3f}" for name, stats in ratios.items() if name != NATIVE)
            print(f"{title:<28}{columns}", flush=True)
            record[title] = {name: stats.to_json() for name, stats in ratios.items()}
    output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
