"""The viewer as a notebook widget, on anywidget: one that can ask for another look. Comes with the extra `notebook`."""

from typing import Any

import anywidget
import traitlets

from dragoman.errors import UserError
from dragoman.viewer.document import viewer_document
from dragoman.viewer.page import bundle_scripts, read_style_sheet
from dragoman.viewer.record import AttentionRecord

# A question goes to Python as a message with a number, and the answer comes back with the same.
_RENDER_SCRIPT = """
export default {
  render({ model, el }) {
    const waiting = new Map();
    let asked = 0;
    const hear = (message) => {
      const { resolve, reject } = waiting.get(message.number) ?? {};
      waiting.delete(message.number);
      if (message.look) resolve?.(message.look);
      else reject?.(new Error(message.error));
    };
    const relook = (change) => new Promise((resolve, reject) => {
      waiting.set(++asked, { resolve, reject });
      model.send({ number: asked, change });
    });
    model.on("msg:custom", hear);
    const shown = show(el, model.get("look"), model.get("live") ? { relook } : {});
    const update = () => shown.update(model.get("look"));
    model.on("change:look", update);
    return () => { model.off("msg:custom", hear); model.off("change:look", update); shown.destroy(); };
  },
};
"""


class AttentionWidget(anywidget.AnyWidget):
    """Shows one record; heads can be switched off and beginnings chosen if the record can be made again."""

    _esm = bundle_scripts() + _RENDER_SCRIPT
    _css = read_style_sheet()
    look = traitlets.Dict().tag(sync=True)
    live = traitlets.Bool().tag(sync=True)

    def __init__(self, record: AttentionRecord) -> None:
        super().__init__(look=viewer_document(record), live=record.rerun is not None)
        self.record = record
        self.on_msg(self._on_message)

    def _on_message(self, _: object, message: dict[str, Any], __: object) -> None:
        """Look once more with what was changed, and send it back."""
        try:
            assert self.record.rerun, "only a live widget asks"
            found = self.record.rerun(**_allowed_changes(message["change"]))
            self.send({"number": message["number"], "look": viewer_document(found)})
        except UserError as error:
            self.send({"number": message["number"], "error": str(error)})


def _allowed_changes(change: dict[str, Any]) -> dict[str, Any]:
    """Return what a page may change about a look."""
    return {name: change[name] for name in ("text", "prefix", "without", "trace") if name in change}


def attention_widget(record: AttentionRecord) -> AttentionWidget:
    """Return a widget of the record."""
    return AttentionWidget(record)
