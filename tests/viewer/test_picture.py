import warnings

import numpy as np
import pytest
from matplotlib.image import imread

from dragoman.errors import UserError
from dragoman.viewer.picture import save_attention_picture, tile_matrices


def test_a_png_can_be_opened_and_is_not_blank(record, tmp_path):
    save_attention_picture(record, tmp_path / "attention.png")
    pixels = imread(tmp_path / "attention.png")
    assert min(pixels.shape[:2]) > 500 and pixels[..., :3].std() > 0.05


@pytest.mark.parametrize(("name", "opening"), [("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.PNG", b"\x89PNG")])
def test_the_ending_of_the_name_chooses_the_format(record_of, tmp_path, name, opening):
    save_attention_picture(record_of(("a", "⟨end⟩"), ("b", "⟨end⟩")), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(opening)


def test_an_unknown_ending_is_refused_with_the_known_ones(record, tmp_path):
    with pytest.raises(UserError, match=r"the file name must end in \.png, \.svg, \.pdf"):
        save_attention_picture(record, tmp_path / "attention.html")


def test_any_piece_can_be_drawn_without_a_warning(record_of, tmp_path):
    pieces = ("電灯", "مصباح", "🙂", "$x_{", "$$", "\n", "\ud800", "", "\x00", "a" * 100, "⟨end⟩")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_attention_picture(record_of(pieces, pieces, title="$\\frac"), tmp_path / "any.png")
    assert (tmp_path / "any.png").stat().st_size > 10_000


def test_every_matrix_has_its_place_on_the_sheet(record):
    sheet = tile_matrices(record.cross)
    _, _, rows, columns = record.cross.shape
    assert np.array_equal(sheet[rows + 1 : 2 * rows + 1, 2 * (columns + 1) :][:, :columns], record.cross[1, 2])
    assert np.isnan(sheet[rows]).all() and np.isnan(sheet[:, columns]).all()
