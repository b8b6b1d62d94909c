"""A record in a notebook: a widget where anywidget is installed, else the page in a frame of its own."""

from html import escape
from importlib.util import find_spec
from typing import Any

from dragoman.viewer.page import page
from dragoman.viewer.record import AttentionRecord, Bundle

HEIGHT = 860  # pixels


def shown(record: AttentionRecord) -> Bundle:
    """Return what a notebook shows of a record."""
    plain = {"text/plain": f"{record.source_text} → {record.target_text}"}
    if find_spec("anywidget"):
        from dragoman.viewer.widget import widget

        made: Any = widget(record)._repr_mimebundle_() or {}
        return {**(made[0] if isinstance(made, tuple) else made), **plain}  # some versions add metadata
    return {**plain, "text/html": framed(page(record))}


def framed(html: str) -> str:
    """Put a page into a frame that may run scripts and save files and nothing else."""
    return (
        f'<iframe srcdoc="{escape(html, quote=True)}" sandbox="allow-scripts allow-downloads" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )
