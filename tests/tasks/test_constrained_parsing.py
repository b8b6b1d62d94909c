"""Untrained and rigged parsers of every kind write trees over strange words: the benchmark of ten thousand, smaller."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "constrained_parsing.py"


@pytest.fixture(scope="module")
def benchmark_script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("constrained_parsing", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_every_output_is_a_tree_over_exactly_the_words_given(benchmark_script, seed):
    found = benchmark_script.run_trials(100, seed)
    assert sum(tally.inputs for tally in found["sentences"].values()) == 100
    assert [why for tally in found["model"].values() for why in tally.wrong] == []


FAULTS = {
    "(S (NN a) (NN b))": None,
    "( (S (NN a)) (NN b))": None,
    "(S (NN a) (NN b)": "not closed",
    "(S (NN a) (NN b)))": "something behind the tree",
    "(S (NN a)) (S (NN b))": "something behind the tree",
    "(S (NN a) (NN b) (NP))": "an empty bracket, or one that was never opened",
    "(S (NN a))": "other words: ['a'] for ['a', 'b']",
    "(NN a)": "a word outside of all brackets",
    "(S (NN a) b)": "text beside the brackets",
    "": "other words: [] for ['a', 'b']",
}


@pytest.mark.parametrize(("output", "fault"), FAULTS.items())
def test_the_reader_of_outputs_finds_what_is_wrong(benchmark_script, output, fault):
    assert benchmark_script.find_error(output, ["a", "b"]) == fault
