from dataclasses import replace

import numpy as np
import pytest


def test_the_decoder_reads_start_and_then_what_it_wrote(record):
    assert record.prefix_pieces == ("⟨start⟩", *record.target_pieces[:-1])
    assert record.column_labels("decoder") == record.prefix_pieces
    assert record.row_labels("decoder") == record.row_labels("cross") == record.target_pieces
    assert record.column_labels("cross") == record.column_labels("encoder") == record.source_pieces


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_weights_that_do_not_fit_the_pieces_are_refused_with_both_shapes(record, kind):
    weights = record.weights(kind)
    with pytest.raises(ValueError, match=rf"{kind} weights have shape \(4, 4, {weights.shape[2]}, 3\)"):
        replace(record, **{kind: weights[..., :3]})
    with pytest.raises(ValueError, match=r"expected \(layers, heads,"):
        replace(record, **{kind: weights[0]})


def test_a_record_without_pieces_is_refused(record_of):
    with pytest.raises(ValueError, match="shape"):
        record_of(("a",), ())


def test_rows_that_do_not_sum_to_one_are_refused_with_their_place(record):
    cross = record.cross.copy()
    cross[2, 1, 5] *= 0.9
    with pytest.raises(ValueError, match=r"row 5 of cross layer 3, head 2 sums to 0\.90000"):
        replace(record, cross=cross)


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.5])
def test_weights_that_no_softmax_makes_are_refused(record, value):
    encoder = record.encoder.copy()
    encoder[0, 0, 0, 0] = value
    with pytest.raises(ValueError, match="encoder"):
        replace(record, encoder=encoder)


def test_rounding_errors_of_a_softmax_are_accepted(record):
    replace(record, cross=record.cross * np.float32(1 + 5e-5))
