"""A record in a notebook: the page, in a frame of its own."""

from html import escape

from dragoman.viewer.page import page
from dragoman.viewer.record import AttentionRecord, Bundle

HEIGHT = 860  # pixels


def shown(record: AttentionRecord) -> Bundle:
    """Return what a notebook shows of a record."""
    return {"text/plain": f"{record.source_text} → {record.target_text}", "text/html": framed(page(record))}


def framed(html: str) -> str:
    """Put a page into a frame that may run scripts and save files and nothing else."""
    return (
        f'<iframe srcdoc="{escape(html, quote=True)}" sandbox="allow-scripts allow-downloads" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )
