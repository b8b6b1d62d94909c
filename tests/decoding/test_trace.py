import pytest
from toy_transducers import Toy, padded

from dragoman.decoding.search import beam_search
from dragoman.decoding.trace import SearchTrace
from dragoman.models.transducer import Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END

CONFIG = DecodingConfig(beam=3, length_penalty=0.6, extra_length=6)


def searched(seed: int, prefix: tuple[int, ...] = ()):
    """Return the best hypothesis of a toy model and the tree of how it was found."""
    trace = SearchTrace()
    best = beam_search(
        Toy(seed), Source.from_ids(padded([[4, 5, END]])), CONFIG, prefix=prefix, on_step=trace.record_step
    )[0][0]
    return best, trace.nodes(best.tokens, CONFIG.length_penalty)


@pytest.mark.parametrize("seed", range(12))
def test_the_chosen_path_is_the_result_with_its_sum_and_score(seed):
    best, nodes = searched(seed)
    chosen = [node for node in nodes if node.status == "chosen"]
    ending = () if best.truncated else (END,)
    assert tuple(node.token for node in chosen) == best.tokens + ending
    assert chosen[-1].sum == pytest.approx(best.log_probability)
    assert chosen[-1].score == pytest.approx(best.score)


@pytest.mark.parametrize("seed", range(12))
def test_every_node_continues_its_parent(seed):
    _, nodes = searched(seed)
    for place, node in enumerate(nodes):
        parent = None if node.parent is None else nodes[node.parent]
        assert node.path[:-1] == (parent.path if parent else ())
        assert node.parent is None or node.parent < place
        assert node.sum == pytest.approx(node.log_probability + (parent.sum if parent else 0))


@pytest.mark.parametrize("seed", range(12))
def test_no_step_has_more_nodes_than_the_beam_is_wide(seed):
    _, nodes = searched(seed)
    steps = [node.step for node in nodes]
    assert max(map(steps.count, steps)) <= CONFIG.beam


def test_what_was_dropped_has_no_surviving_descendant():
    _, nodes = searched(3)
    pruned = {place for place, node in enumerate(nodes) if node.status == "pruned"}
    assert pruned
    assert all(node.status == "pruned" for node in nodes if node.parent in pruned)


def test_watching_a_search_does_not_change_it():
    assert searched(5)[0] == beam_search(Toy(5), Source.from_ids(padded([[4, 5, END]])), CONFIG)[0][0]


@pytest.mark.parametrize("seed", range(12))
def test_every_hypothesis_begins_with_the_prefix_and_is_scored_as_if_it_had_been_chosen(seed):
    free, _ = searched(seed)
    prefix = free.tokens[:2]
    forced, nodes = searched(seed, prefix=prefix)
    assert forced.tokens[: len(prefix)] == prefix
    assert all(node.path[: len(prefix)] == prefix[: len(node.path)] for node in nodes)
    assert forced.score >= free.score - 1e-9


def test_a_prefix_beyond_the_longest_output_still_has_room_to_end():
    prefix = (4, 5) * 10
    best, _ = searched(1, prefix=prefix)
    assert best.tokens[:20] == prefix
    assert len(best.tokens) <= 20 + CONFIG.extra_length
