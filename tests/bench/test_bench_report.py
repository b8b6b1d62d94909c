"""From measurements to tables, JSON and a picture."""

import json

import pytest

from dragoman.bench.config import BenchmarkConfig
from dragoman.bench.decoding import DecodingResult
from dragoman.bench.machine import Machine
from dragoman.bench.plot import chart_rows, plot_report
from dragoman.bench.report import BenchmarkReport
from dragoman.bench.stats import SampleStats
from dragoman.bench.training import TORCH_ENGINES, TrainingResult


def trained(contender: str, *speeds: float) -> TrainingResult:
    return TrainingResult("tiny", contender, SampleStats(speeds), 500_000_000, 3, 2_000_000, flops=1e6)


def decoded(contender: str, beam: int, speed: float, milliseconds: float) -> DecodingResult:
    speeds = SampleStats((speed, speed)), SampleStats((25 * speed, 25 * speed))
    waits = SampleStats((milliseconds, milliseconds)), SampleStats((2 * milliseconds, 2 * milliseconds))
    return DecodingResult("base", contender, beam, "64 examples", *speeds, *waits, (3, 25), 30.04, flops=1e8)


@pytest.fixture
def report():
    return BenchmarkReport(
        Machine("A processor", ("avx2",), 2, 2, "Linux x86_64", {"dragoman": "1", "torch": "2"}, "x86-64-v3"),
        BenchmarkConfig(repeats=2),
        ["A note."],
        {"float32": SampleStats((100.0, 100.0)), "int8": SampleStats((200.0, 400.0))},
        [trained("dragoman", 6000.0, 9000.0), trained(TORCH_ENGINES["float32"], 2000.0, 3000.0)],
        [
            decoded("dragoman", 1, 100.0, 30.0), decoded("CTranslate2 float32, 1 × 2", 1, 400.0, 10.0),
            decoded("CTranslate2 int8, 2 × 1", 1, 500.0, 20.0), decoded("dragoman", 4, 50.0, 60.0),
        ],
    )  # fmt: skip


def test_a_training_is_compared_with_the_plain_loop_and_with_the_peak(report):
    _, training, *_ = report.tables()
    assert training.rows[0] == (
        "tiny (2.0 M)", "dragoman", "7,500 (6,000–9,000)", "3.00 (3.00–3.00)", "", "8%", "500 MB",
    )  # fmt: skip


def test_decoding_is_compared_with_the_best_of_ctranslate2_at_the_same_beam(report):
    ours, float32, int8, wide = report.decoding
    assert [report.bulk_ratio(each).median for each in (ours, float32, int8)] == [0.2, 0.8, 1.0]
    assert [report.latency_ratio(each).median for each in (ours, float32, int8)] == [pytest.approx(1 / 3), 1.0, 0.5]
    assert report.bulk_ratio(wide) is None


def test_decoding_has_a_table_for_bulk_and_one_for_single_sentences(report):
    *_, bulk, single = report.tables()
    assert bulk.rows[0] == (
        "base", "1", "dragoman", "64 examples", "100 (100–100)", "2,500 (2,500–2,500)", "0.20 (0.20–0.20)", "10%",
        "3–25", "30.0",
    )  # fmt: skip
    assert single.rows[0][3:5] == ("30.0 (30.0–30.0)", "60.0 (60.0–60.0)")
    assert [row[1] for row in single.rows] == ["1", "1", "1", "4"]


def test_what_was_not_measured_has_no_table(report):
    alone = BenchmarkReport(report.machine, report.config, [], report.peaks, report.training, [])
    assert [table.title for table in alone.tables()] == ["Matrix multiplication speed, 2048³", "Training"]


def test_the_markdown_holds_every_table_machine_and_notes(report):
    text = report.to_markdown()
    assert all(table.title in text for table in report.tables())
    assert "A processor (avx2), 2 threads on 2 cores" in text
    assert "native kernels x86-64-v3" in text
    assert "- A note." in text
    assert "| size | engine | target tokens/s |" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("| tiny")}
    assert widths == {8}


def test_the_json_holds_every_value_and_ratio(report):
    found = json.loads(json.dumps(report.to_json()))
    assert found["peak_gigaflops"]["int8"] == {
        "median": 300.0,
        "lowest": 200.0,
        "highest": 400.0,
        "values": [200.0, 400.0],
    }
    assert found["training"][0]["ratio_to"][TORCH_ENGINES["float32"]]["median"] == 3.0
    assert found["training"][0]["fraction_of_float32_peak"] == pytest.approx(0.075)
    assert found["decoding"][0]["ratio_to_best_ctranslate2"]["bulk"]["median"] == 0.2
    assert found["decoding"][3]["ratio_to_best_ctranslate2"] == {}


def test_the_picture_has_a_panel_a_training_and_two_a_beam(report, tmp_path):
    assert [[panel.title for panel in row] for row in chart_rows(report)] == [
        ["Training, tiny"],
        ["Decoding in bulk, base, beam 1", "One sentence at a time, base, beam 1"],
        ["Decoding in bulk, base, beam 4", "One sentence at a time, base, beam 4"],
    ]
    plot_report(report, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
