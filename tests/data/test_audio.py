"""Sound files of every kind give the same samples, bad ones a clear error; features agree with their definition."""

import io
import itertools
import math
import struct
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
import soundfile

from dragoman.data.audio import log_mel, normalise, resample
from dragoman.data.sound_files import read_sound, sound_seconds, stream_sound
from dragoman.errors import UserError

RATE = 16_000
RATES = (8000, 11_025, 16_000, 44_100, 48_000, 96_000)
FLAC_TOTAL = (1 << 36) - 1  # the bits of a FLAC header that hold its number of frames


def tone(hertz: float, rate: int = RATE, seconds: float = 1.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)).astype(np.float32)


def noise(count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-0.5, 0.5, count).astype(np.float32)


def encode(samples: np.ndarray, kind: str = "WAV", subtype: str = "PCM_16", rate: int = RATE, **options) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype, **options)
    return file.getvalue()


def read(content: bytes, **options) -> tuple[np.ndarray, int]:
    return read_sound(io.BytesIO(content), "a.wav", **options)


def zip_member(content: bytes, compression: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("a.wav", content)
    return file


def with_flac_frames(content: bytes, frames: int) -> bytes:
    fields = int.from_bytes(content[18:26], "big")
    return content[:18] + (fields & ~FLAC_TOTAL | frames).to_bytes(8, "big") + content[26:]


def with_wav_field(content: bytes, offset: int, layout: str, value: int) -> bytes:
    return content[:offset] + struct.pack(layout, value) + content[offset + struct.calcsize(layout) :]


TONE = tone(440)
WAV = encode(TONE)
FLAC = encode(tone(440, seconds=10), "FLAC")
OGG = encode(tone(440, seconds=10), "OGG", "VORBIS")
MP3 = encode(tone(440, seconds=10), "MP3", "MPEG_LAYER_III")
ID3 = b"ID3\x04\0\0\0\0\x20\0" + bytes(4096)
CHANNELS, HERTZ, DATA_SIZE = (22, "<H"), (24, "<I"), (40, "<I")  # fields of the header of a WAV file


# Reading


LOSSLESS = {
    ("WAV", "PCM_U8"): 2**-7,
    ("WAV", "PCM_16"): 2**-15,
    ("WAV", "PCM_24"): 2**-23,
    ("WAV", "PCM_32"): 2**-24,
    ("WAV", "FLOAT"): 0,
    ("WAV", "DOUBLE"): 0,
    ("WAVEX", "PCM_16"): 2**-15,
    ("RF64", "PCM_16"): 2**-15,
    ("FLAC", "PCM_S8"): 2**-7,
    ("FLAC", "PCM_16"): 2**-15,
    ("FLAC", "PCM_24"): 2**-23,
}
LOSSY = [("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS"), ("OGG", "OPUS")]


@pytest.mark.parametrize(("kind", "subtype"), LOSSLESS)
def test_a_lossless_file_of_any_name_gives_its_samples_within_one_step_of_quantisation(tmp_path, kind, subtype):
    path = tmp_path / "recording.mp3"
    path.write_bytes(encode(TONE, kind, subtype, 11_025))
    samples, rate = read_sound(path, "recording")
    assert (samples.dtype, samples.shape, rate) == (np.float32, TONE.shape, 11_025)
    np.testing.assert_allclose(samples, TONE, rtol=0, atol=LOSSLESS[kind, subtype])


@pytest.mark.parametrize(("kind", "subtype"), LOSSY)
def test_a_lossy_file_of_any_name_gives_about_its_samples(tmp_path, kind, subtype):
    path = tmp_path / "recording.raw"  # soundfile takes this suffix for samples without a header
    path.write_bytes(encode(TONE, kind, subtype))
    samples, rate = read_sound(str(path), "recording")
    assert (samples.dtype, samples.shape, rate) == (np.float32, TONE.shape, RATE)
    assert np.abs(samples - TONE)[1000:-1000].max() < 0.05


def test_a_big_endian_wav_file_is_read():
    samples, _ = read(encode(TONE, endian="BIG"))
    np.testing.assert_allclose(samples, TONE, rtol=0, atol=2**-15)


@pytest.mark.parametrize("content", [FLAC, MP3], ids=["flac", "mp3"])
def test_tags_before_the_sound_are_skipped(content):
    assert read(ID3 + content)[0].tolist() == read(content)[0].tolist()


@pytest.mark.parametrize("channels", [2, 3, 8, 64])
def test_channels_are_mixed_to_their_mean(channels):
    all_channels = noise(500 * channels).reshape(500, channels)
    samples, _ = read(encode(all_channels, subtype="FLOAT"))
    np.testing.assert_allclose(samples, all_channels.mean(axis=1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("content", [WAV, FLAC, OGG, MP3], ids=["wav", "flac", "ogg", "mp3"])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_of_a_zip_archive_is_read_where_it_is(content, compression):
    expected, rate = read(content)
    with zipfile.ZipFile(zip_member(content, compression)) as archive, archive.open("a.wav") as member:
        samples, member_rate = read_sound(member, "train.zip/a.wav")
    assert (samples.tolist(), member_rate) == (expected.tolist(), rate)


def test_an_open_file_is_read_from_its_start_and_stays_open():
    file = io.BytesIO(WAV)
    file.seek(100)
    assert len(read_sound(file, "a.wav")[0]) == len(TONE)
    assert sound_seconds(file, "a.wav") == 1.0
    assert not file.closed


@pytest.mark.parametrize("content", [WAV, FLAC, OGG, MP3], ids=["wav", "flac", "ogg", "mp3"])
@pytest.mark.parametrize("block_seconds", [0.013, 0.5, 60.0])
def test_a_stream_gives_the_samples_of_the_whole_file_in_blocks(content, block_seconds):
    expected, rate = read(content)
    stream = stream_sound(io.BytesIO(content), "a.wav", block_seconds)
    blocks = list(stream)
    assert stream.rate == rate
    assert {len(block) for block in blocks[:-1]} <= {round(block_seconds * rate)}
    assert np.concatenate(blocks).tolist() == expected.tolist()
    assert np.concatenate(list(stream)).tolist() == expected.tolist()  # a second time


def test_a_stream_needs_memory_for_its_blocks_only():
    content = encode(noise(RATE * 300))
    tracemalloc.start()
    assert sum(map(len, stream_sound(io.BytesIO(content), "a.wav", 1.0))) == RATE * 300
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6  # all samples are 19 MB


def test_seconds_are_read_from_the_header():
    assert [sound_seconds(io.BytesIO(content), "a") for content in (WAV, FLAC, OGG, MP3)] == [1.0, 10.0, 10.0, 10.0]
    assert sound_seconds(io.BytesIO(with_flac_frames(FLAC, RATE * 3600)[:200]), "a") == 3600


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000])
def test_a_wav_file_that_was_written_to_a_pipe_is_read_to_its_end(size):
    content = with_wav_field(WAV, *DATA_SIZE, size)
    assert len(read(content)[0]) == len(TONE)


def test_an_mp3_file_without_a_length_is_read_to_its_end():
    """Without a length in the header, libsndfile estimates one from the size of the file, including its tags."""
    content = encode(tone(440, 8000, 3), "MP3", "MPEG_LAYER_III", 8000, bitrate_mode="CONSTANT", compression_level=0.8)
    assert b"Info" not in content[:64]
    assert sound_seconds(io.BytesIO(ID3 + content), "a.mp3") > sound_seconds(io.BytesIO(content), "a.mp3")
    assert read(ID3 + content)[0].tolist() == read(content)[0].tolist()


# Bad files


BAD = {
    "empty": (b"", "a.wav: the file is empty; expected a sound file: WAV, FLAC, MP3 or OGG."),
    "text": (
        b"a dog runs\n" * 50,
        "a.wav is a text file; expected a sound file: WAV, FLAC, MP3 or OGG. Give another file, or",
    ),
    "zip": (zip_member(WAV).getvalue(), "a.wav is a ZIP archive; expected a sound file"),
    "gzip": (b"\x1f\x8b\x08" + bytes(50), "a.wav is a gzip archive; expected a sound file"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "a.wav is a PNG image; expected a sound file"),
    "aiff": (encode(TONE, "AIFF"), "a.wav is an AIFF file; expected a sound file"),
    "au": (encode(TONE, "AU"), "a.wav is an AU file; expected a sound file"),
    "m4a": (b"\0\0\0\x20ftypM4A " + bytes(100), "a.wav is an MP4 or M4A file; expected a sound file"),
    "wav after id3": (
        ID3 + WAV,
        "a.wav is WAV (Microsoft) after an ID3 tag, which is not supported; convert it to WAV",
    ),
    "aiff after id3": (
        ID3 + encode(TONE, "AIFF"),
        "a.wav is AIFF (Apple/SGI) after an ID3 tag, which is not supported;",
    ),
    "zeros": (bytes(1000), "a.wav is of an unknown kind; expected a sound file"),
    "bytes": (b"\xfe\xdc\xba" * 100, "a.wav is of an unknown kind; expected a sound file"),
    "no samples": (encode(TONE[:0]), "a.wav contains no samples. Record or convert it again, or remove it."),
    "no samples, ogg": (encode(TONE[:0], "OGG", "VORBIS"), "a.wav contains no samples."),
    "half a wav header": (
        WAV[:30],
        "a.wav cannot be decoded (Error in WAV file. No 'data' chunk marker). It is truncat",
    ),
    "wav header": (WAV[:44], "a.wav is truncated: its header promises 32,000 bytes of samples, but 0 follow. Copy or"),
    "truncated wav": (WAV[:-10], "a.wav is truncated: its header promises 32,000 bytes of samples, but 31,990 follow."),
    "truncated rf64": (encode(TONE, "RF64")[:-10], "promises 32,000 bytes of samples, but 31,990 follow."),
    "truncated rifx": (encode(TONE, endian="BIG")[:-10], "promises 32,000 bytes of samples, but 31,990 follow."),
    "huge wav": (with_wav_field(WAV, *DATA_SIZE, 0xFFFFFFF0), "promises 4,294,967,280 bytes of samples, but 32,000"),
    "truncated flac": (FLAC[: len(FLAC) // 2], "a.wav cannot be decoded (flac decoder lost sync). It is truncated or"),
    "damaged flac": (FLAC[:9000] + bytes(50) + FLAC[9050:], "damaged: its header promises 10.00 s of sound. Copy or"),
    "huge flac": (with_flac_frames(FLAC, FLAC_TOTAL), "truncated or damaged: its header promises 4,294,967.30 s"),
    "flac of unknown length": (with_flac_frames(FLAC, 0), "a.wav does not have its length in its header, as if writ"),
    "truncated ogg": (OGG[:-1], "a.wav is truncated: its last page is incomplete or not marked as the last. Copy or"),
    "ogg without its last page": (OGG[: OGG.rindex(b"OggS\0")], "a.wav is truncated: its last page is incomplete or"),
    "ogg header": (OGG[:20], "a.wav is truncated: its last page is incomplete or not marked as the last."),
    "truncated mp3": (
        MP3[: len(MP3) // 2],
        "a.wav is truncated: its header promises 10.00 s of sound, but it ends aft",
    ),
    "mp3 frame": (MP3[:200], "a.wav cannot be decoded. It is truncated, damaged or of an unsupported kind; convert it"),
    "two mp3 files": (MP3 + MP3, "a.wav goes on after 10.00 s of sound, the length in its header or by its first bit"),
    "no channels": (with_wav_field(WAV, *CHANNELS, 0), "a.wav has 0 channels; expected 1 to 64. Mix it to mono"),
    "65 channels": (with_wav_field(WAV, *CHANNELS, 65), "a.wav has 65 channels; expected 1 to 64."),
    "2000 channels": (with_wav_field(WAV, *CHANNELS, 2000), "a.wav has 2,000 channels; expected 1 to 64."),
    "0 Hz": (with_wav_field(WAV, *HERTZ, 0), "a.wav has a sampling rate of 0 Hz; expected 1,000 to 768,000 Hz."),
    "999 Hz": (with_wav_field(WAV, *HERTZ, 999), "a.wav has a sampling rate of 999 Hz; expected 1,000 to 768,000 Hz."),
    "999 Hz, flac": (encode(TONE, "FLAC", rate=999), "a.wav has a sampling rate of 999 Hz; expected 1,000 to 768,0"),
    "768,001 Hz": (with_wav_field(WAV, *HERTZ, 768_001), "a.wav has a sampling rate of 768,001 Hz; expected"),
    "4 GHz": (with_wav_field(WAV, *HERTZ, 0xFFFFFFFF), "a.wav has a sampling rate of 4,294,967,295 Hz; expected"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_cannot_be_read_is_an_error_that_says_why(kind):
    content, message = BAD[kind]
    with pytest.raises(UserError) as caught:
        read(content)
    assert message in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_sample_that_is_not_a_reasonable_number_is_an_error_that_says_where(value, channels):
    samples = np.zeros((RATE, channels), np.float32)
    samples[800:] = value
    with pytest.raises(UserError) as caught:
        read(encode(samples, subtype="FLOAT"))
    assert str(caught.value).startswith(f"a.wav: sample 800, at 0.050 s, is {value:g}; expected about -1 to 1. Record")


def test_an_error_in_a_later_block_reaches_the_reader_of_a_stream():
    blocks = iter(stream_sound(io.BytesIO(MP3[: len(MP3) // 2]), "a.mp3", 0.1))
    assert len(next(blocks)) == 0.1 * RATE
    with pytest.raises(UserError, match=r"a\.mp3 is truncated"):
        list(blocks)


def test_several_streams_in_an_ogg_file_are_an_error():
    last = OGG.rindex(b"OggS\0")
    content = OGG[: last + 14] + bytes(reversed(OGG[14:18])) + OGG[last + 18 :]
    with pytest.raises(UserError, match=r"a\.wav contains several streams; expected one\. Split it, or convert it"):
        read(content)


def test_a_file_that_is_too_long_is_refused_by_its_header():
    assert len(read(WAV, max_seconds=1.0)[0]) == RATE
    with pytest.raises(UserError, match=r"^a\.wav is 1\.00 s long; expected at most 0\.50 s\. Split it first\.$"):
        read(WAV, max_seconds=0.5)
    with pytest.raises(UserError, match=r"is 4,294,967\.30 s long; expected at most 3,600\.00 s"):
        read(with_flac_frames(FLAC, FLAC_TOTAL)[:200], max_seconds=3600)


def test_the_length_in_a_header_is_not_allocated():
    tracemalloc.start()
    with pytest.raises(UserError):
        read(with_flac_frames(FLAC, FLAC_TOTAL))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


def test_a_missing_file_names_a_similar_one(tmp_path):
    (tmp_path / "record.wav").write_bytes(WAV)
    with pytest.raises(UserError, match=r'^recrd\.wav: no such file\. Did you mean ".*record\.wav"\?$'):
        read_sound(tmp_path / "recrd.wav", "recrd.wav")


def test_a_directory_and_a_name_with_nul_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"^data: is a directory; expected a sound file: WAV, FLAC, MP3 or OGG"):
        sound_seconds(tmp_path, "data")
    with pytest.raises(UserError, match="a file name cannot contain NUL characters"):
        sound_seconds("a\0.wav", "a\0.wav")


def test_a_pipe_is_an_error():
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    with pytest.raises(UserError, match=r"a\.wav: sound cannot be read from a pipe; save it to a file first"):
        read_sound(Pipe(WAV), "a.wav")


def test_a_damaged_member_of_a_zip_archive_is_an_error_and_not_a_traceback_of_a_callback(capfd):
    file = zip_member(WAV, zipfile.ZIP_STORED)
    file.getbuffer()[20_000] ^= 1
    error = pytest.raises(UserError, match=r"^train\.zip/a\.wav: cannot be read \(Bad CRC-32")
    with zipfile.ZipFile(file) as archive, archive.open("a.wav") as member, error:
        read_sound(member, "train.zip/a.wav")
    assert capfd.readouterr() == ("", "")


def test_an_exception_while_reading_is_raised_after_libsndfile_returns(capfd):
    class Interrupted(io.BytesIO):
        def read(self, count: int | None = -1, /) -> bytes:
            if self.tell() > 10_000:
                raise KeyboardInterrupt
            return super().read(count)

    with pytest.raises(KeyboardInterrupt):
        read_sound(Interrupted(WAV), "a.wav")
    assert capfd.readouterr() == ("", "")


def test_a_missing_package_is_an_error_that_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(UserError) as caught:
        read(WAV)
    assert str(caught.value) == 'soundfile is not installed; install it with: pip install "dragoman[audio]"'


# Resampling


@pytest.mark.parametrize(("rate", "new_rate"), list(itertools.permutations(RATES, 2)))
def test_a_tone_keeps_its_frequency_and_amplitude_at_another_rate(rate, new_rate):
    hertz = 0.4 * min(rate, new_rate)
    resampled = resample(tone(hertz, rate, 0.25), rate, new_rate)
    assert resampled.dtype == np.float32
    expected = tone(hertz, new_rate, 0.26)[: len(resampled)]
    middle = slice(len(resampled) // 4, -len(resampled) // 4)
    assert np.abs(resampled - expected)[middle].max() < 0.01 * 0.5


@pytest.mark.parametrize(("rate", "new_rate"), [pair for pair in itertools.permutations(RATES, 2) if pair[0] > pair[1]])
@pytest.mark.parametrize("share", [1.001, 1.05, 1.3])
def test_a_tone_above_the_new_nyquist_frequency_is_60_db_lower(rate, new_rate, share):
    hertz = min(share * new_rate / 2, rate / 2 - 1)
    resampled = resample(tone(hertz, rate, 0.25), rate, new_rate)
    middle = slice(len(resampled) // 4, -len(resampled) // 4)
    assert np.abs(resampled[middle]).max() < 0.5e-3


@pytest.mark.parametrize(
    ("rate", "new_rate"), [(8000, 16_000), (16_000, 8000), (11_025, 96_000), (16_000, 17_778), (44_100, 14_545)]
)
def test_the_length_is_that_of_the_same_time_rounded_up(rate, new_rate):
    counts = (1, 2, 159, 160, 161, 1001)
    lengths = [len(resample(noise(count), rate, new_rate)) for count in counts]
    assert lengths == [math.ceil(count * new_rate / rate) for count in counts]


def test_a_round_trip_gives_back_what_both_rates_can_hold():
    samples = tone(300) + tone(2500) / 2
    back = resample(resample(samples, 16_000, 44_100), 44_100, 16_000)
    assert len(back) == len(samples)
    assert np.abs(back - samples)[200:-200].max() < 1e-3


@pytest.mark.parametrize("new_rate", [9000, 17_778, 48_000])
def test_resampling_is_a_weighted_sum_of_the_input_around_each_output(new_rate):
    """The definition, sample by sample, in float64."""
    samples = noise(300)
    cutoff = 0.95 * min(1, new_rate / RATE)
    expected = []
    for output in range(math.ceil(300 * new_rate / RATE)):
        distances = np.arange(-300, 600) - output * RATE / new_rate
        reach = np.clip(1 - (distances * cutoff / 48) ** 2, 0, None)
        weights = np.where(reach > 0, np.sinc(cutoff * distances) * np.i0(8 * np.sqrt(reach)), 0)
        expected.append(weights[300:600] @ samples / weights.sum())
    np.testing.assert_allclose(resample(samples, RATE, new_rate), expected, rtol=0, atol=1e-6)


def test_equal_rates_change_nothing():
    assert resample(TONE, RATE, RATE) is TONE
    assert len(resample(TONE[:0], RATE, 8000)) == 0


def test_a_constant_stays_constant_at_a_ratio_of_large_numbers():
    resampled = resample(np.full(3000, 0.5, np.float32), 44_100, 44_101)
    np.testing.assert_allclose(resampled[200:-200], 0.5, rtol=0, atol=1e-6)


@pytest.mark.parametrize("speed", [0.9, 1.1])
def test_a_slower_or_faster_tone_is_longer_and_lower_or_shorter_and_higher(speed):
    changed = resample(tone(1000), RATE, round(RATE / speed))
    assert len(changed) == round(RATE / speed)
    peak = np.argmax(np.abs(np.fft.rfft(changed))) * RATE / len(changed)
    assert abs(peak - 1000 * speed) < 2


def test_resampling_a_long_recording_needs_little_memory_beside_it():
    samples = noise(RATE * 120)
    tracemalloc.start()
    resample(samples, RATE, 11_025)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25e6  # the samples are 8 MB, the weights of all outputs would be 700 MB


# Features


def slaney_mel(hertz: float) -> float:
    return hertz / (200 / 3) if hertz < 1000 else 15 + math.log(hertz / 1000) / (math.log(6.4) / 27)


def slaney_hertz(mel: float) -> float:
    return mel * 200 / 3 if mel < 15 else 1000 * math.exp((mel - 15) * math.log(6.4) / 27)


def triangle(hertz: float, low: float, centre: float, high: float) -> float:
    """Return the weight of a frequency in a band, with an area of 1 under the triangle, as librosa documents it."""
    return max(0, min((hertz - low) / (centre - low), (high - hertz) / (high - centre))) * 2 / (high - low)


def textbook_log_mel(samples: np.ndarray, rate: int, bands: int, size: int, hop: int, fft_size: int) -> np.ndarray:
    edges = [slaney_hertz(slaney_mel(rate / 2) * index / (bands + 1)) for index in range(bands + 2)]
    frequencies = [index * rate / fft_size for index in range(fft_size // 2 + 1)]
    filters = np.array(
        [[triangle(hertz, *edges[band : band + 3]) for hertz in frequencies] for band in range(bands)]
    )  # bands frequencies
    angles = 2 * np.pi * np.outer(np.arange(fft_size // 2 + 1), np.arange(size)) / fft_size
    fourier = np.cos(angles) - 1j * np.sin(angles)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    rows = []
    for start in range(0, max(1, len(samples) - size + hop), hop):
        frame = np.zeros(size)
        frame[: len(samples[start : start + size])] = samples[start : start + size]
        rows.append(np.log(np.maximum(1e-10, filters @ np.abs(fourier @ (window * frame)) ** 2)))
    return np.array(rows)


@pytest.mark.parametrize(
    ("rate", "bands", "window_ms", "hop_ms", "size", "hop", "fft_size"),
    [
        (16_000, 80, 25, 10, 400, 160, 512),
        (8000, 80, 25, 10, 200, 80, 256),
        (16_000, 40, 32, 16, 512, 256, 512),
        (44_100, 128, 25, 10, 1102, 441, 2048),
    ],
)
def test_log_mel_is_the_textbook_formula(rate, bands, window_ms, hop_ms, size, hop, fft_size):
    samples = noise(3000) * np.linspace(0, 1, 3000, dtype=np.float32) + tone(700, rate)[:3000]
    features = log_mel(samples, rate, bands=bands, window_ms=window_ms, hop_ms=hop_ms)
    expected = textbook_log_mel(samples, rate, bands, size, hop, fft_size)
    assert (features.dtype, features.shape) == (np.float32, expected.shape)
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-3)


def test_log_mel_is_that_of_librosa():
    librosa = pytest.importorskip("librosa", reason="librosa is not installed")
    samples = noise(RATE) + TONE
    # librosa centres a window of 400 in a frame of 512.
    mel = librosa.feature.melspectrogram(
        y=np.pad(samples, 56), sr=RATE, n_fft=512, win_length=400, hop_length=160, n_mels=80, center=False
    )
    expected = np.log(np.maximum(mel, 1e-10)).T
    np.testing.assert_allclose(log_mel(samples, RATE)[: len(expected)], expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("count", "frames"), [(0, 1), (1, 1), (399, 1), (400, 1), (401, 2), (560, 2), (561, 3), (16_000, 99)]
)
def test_every_sample_is_in_a_frame_and_no_frame_is_all_padding(count, frames):
    features = log_mel(noise(count), RATE)
    assert features.shape == (frames, 80)


def test_frames_of_long_and_short_recordings_are_the_same():
    samples = noise(RATE * 60)
    features = log_mel(samples, RATE)
    for start in (0, 2600, 2621, 2622, 5900):
        part = log_mel(samples[start * 160 :][: 10 * 160 + 240], RATE)
        np.testing.assert_allclose(part, features[start : start + 10], rtol=0, atol=1e-5)


def test_a_tone_of_1_khz_is_loudest_in_the_band_around_1_khz():
    features = log_mel(tone(1000), RATE)
    centres = [slaney_hertz(slaney_mel(8000) * (band + 1) / 81) for band in range(80)]
    nearest = int(np.argmin(np.abs(np.array(centres) - 1000)))
    assert set(features[:-1].argmax(axis=1)) == {nearest}


def test_silence_is_the_floor():
    assert np.unique(log_mel(np.zeros(2000, np.float32), RATE)) == [np.log(np.float32(1e-10))]


def test_more_bands_than_the_spectrum_can_fill_are_an_error():
    with pytest.raises(UserError, match="500 mel bands are too many for sound at 16,000 Hz and a spectrum of 512 poi"):
        log_mel(TONE, RATE, bands=500)


def test_features_of_a_long_recording_need_little_memory_beside_them():
    samples = noise(RATE * 180)
    tracemalloc.start()
    features = log_mel(samples, RATE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * features.nbytes + 8e6  # the spectrum of all frames alone would be 37 MB


def test_normalised_features_have_mean_0_in_each_band_and_variance_1_in_all_together():
    features = log_mel(noise(RATE) * np.linspace(0, 1, RATE, dtype=np.float32), RATE)
    normalised = normalise(features)
    assert normalised.dtype == np.float32
    np.testing.assert_allclose(normalised.mean(axis=0), 0, rtol=0, atol=1e-5)
    assert normalised.std() == pytest.approx(1, abs=1e-5)
    strengths = normalised.std(axis=0) / features.std(axis=0)
    np.testing.assert_allclose(strengths, strengths[0], rtol=1e-4)
    np.testing.assert_allclose(
        normalise(log_mel(3 * noise(RATE), RATE)), normalise(log_mel(noise(RATE), RATE)), atol=1e-3
    )


@pytest.mark.parametrize("new_rate", [RATE, RATE // 2])
def test_digital_silence_does_not_change_the_normalised_sound_beside_it(new_rate):
    syllables = np.square(np.sin(np.linspace(0, 20, 4 * RATE, dtype=np.float32))) + np.float32(0.01)
    sound, silence = noise(4 * RATE) * syllables, np.zeros(RATE, np.float32)

    def frames(*parts):
        return normalise(log_mel(resample(np.concatenate(parts), RATE, new_rate), new_rate))

    alone, padded = frames(sound), frames(silence, sound, silence)
    assert np.abs(padded[102:496] - alone[2:396]).mean() < 0.1
    assert padded[:90].min() > -10 and padded[-90:].min() > -10


def test_normalised_silence_and_a_single_frame_are_zero():
    assert not normalise(log_mel(np.zeros(RATE, np.float32), RATE)).any()
    assert not normalise(log_mel(noise(100), RATE)).any()
