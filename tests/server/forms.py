"""Forms with a recording, and sound files, as clients send them."""

import io
import wave
from typing import Any

import numpy as np

BOUNDARY = "a-boundary-that-is-in-no-recording"


def part(name: str, content: bytes, filename: str | None = None) -> bytes:
    """Return one part of a form."""
    suffix = f'; filename="{filename}"' if filename is not None else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{suffix}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def encode_form(file: bytes | None, filename: str = "sound.wav", **fields: Any) -> bytes:
    """Return a form with a recording in the field `file`, and other fields."""
    parts = [] if file is None else [part("file", file, filename)]
    parts += [part(name, str(value).encode()) for name, value in fields.items()]
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def send_form(server: Any, body: bytes, path: str = "/v1/transcribe", **headers: str) -> Any:
    """Send a form to a server."""
    return server.post(path, body, content_type=f"multipart/form-data; boundary={BOUNDARY}", **headers)


def send_recording(server: Any, file: bytes, path: str = "/v1/transcribe", **fields: Any) -> Any:
    """Send a recording with other fields to a server."""
    return send_form(server, encode_form(file, **fields), path)


def encode_wav(samples: np.ndarray, rate: int = 8000, channels: int = 1) -> bytes:
    """Return a WAV file with 16 bits per sample."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return content.getvalue()
