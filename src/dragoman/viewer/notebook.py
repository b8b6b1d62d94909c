"""Show a record in a notebook: as a widget if anywidget is installed, otherwise as a page in a frame."""

from html import escape
from importlib.util import find_spec
from typing import Any

from dragoman.viewer.page import render_page
from dragoman.viewer.record import AttentionRecord, MimeBundle

_FRAME_HEIGHT = 860  # pixels


def mime_bundle(record: AttentionRecord) -> MimeBundle:
    """Return the representations of a record, by media type."""
    plain = {"text/plain": f"{record.source_text} → {record.target_text}"}
    if find_spec("anywidget"):
        from dragoman.viewer.widget import AttentionWidget

        bundle: Any = AttentionWidget(record)._repr_mimebundle_() or {}
        return {**(bundle[0] if isinstance(bundle, tuple) else bundle), **plain}  # some versions add metadata
    # The frame may run scripts and save files, and nothing else.
    frame = (
        f'<iframe srcdoc="{escape(render_page(record), quote=True)}" sandbox="allow-scripts allow-downloads" '
        f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'
    )
    return {**plain, "text/html": frame}
