"""A record in a notebook: a widget where anywidget is installed, else the page in a frame of its own."""

from html import escape
from importlib.util import find_spec
from typing import Any

from dragoman.viewer.page import render_page
from dragoman.viewer.record import AttentionRecord, MimeBundle

_FRAME_HEIGHT = 860  # pixels


def mime_bundle(record: AttentionRecord) -> MimeBundle:
    """Return what a notebook shows of a record."""
    plain = {"text/plain": f"{record.source_text} → {record.target_text}"}
    if find_spec("anywidget"):
        from dragoman.viewer.widget import attention_widget

        made: Any = attention_widget(record)._repr_mimebundle_() or {}
        return {**(made[0] if isinstance(made, tuple) else made), **plain}  # some versions add metadata
    return {**plain, "text/html": _sandboxed_frame(render_page(record))}


def _sandboxed_frame(html: str) -> str:
    """Put a page into a frame that may run scripts and save files and nothing else."""
    return (
        f'<iframe srcdoc="{escape(html, quote=True)}" sandbox="allow-scripts allow-downloads" '
        f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'
    )
