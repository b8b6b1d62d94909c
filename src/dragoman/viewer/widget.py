"""The viewer as a notebook widget, built on anywidget (extra `notebook`). It can request new records from Python."""

from typing import Any

import anywidget
import traitlets

from dragoman.errors import UserError
from dragoman.viewer.document import viewer_document
from dragoman.viewer.page import bundle_scripts, read_style_sheet
from dragoman.viewer.record import AttentionRecord

_CHANGEABLE_OPTIONS = ("text", "prefix", "ablate_heads", "trace")  # of AttentionRecord.rerun, by the page

# Requests are numbered messages; the reply has the number of its request.
_RENDER_SCRIPT = """
export default {
  render({ model, el }) {
    const pending = new Map();
    let requests = 0;
    const receive = (message) => {
      const { resolve, reject } = pending.get(message.number) ?? {};
      pending.delete(message.number);
      if (message.record) resolve?.(message.record);
      else reject?.(new Error(message.error));
    };
    const rerun = (change) => new Promise((resolve, reject) => {
      pending.set(++requests, { resolve, reject });
      model.send({ number: requests, change });
    });
    model.on("msg:custom", receive);
    const viewer = show(el, model.get("record"), model.get("live") ? { rerun } : {});
    const update = () => viewer.update(model.get("record"));
    model.on("change:record", update);
    return () => { model.off("msg:custom", receive); model.off("change:record", update); viewer.destroy(); };
  },
};
"""


class AttentionWidget(anywidget.AnyWidget):
    """Shows one record. Heads can be ablated and prefixes chosen if the record can be recomputed."""

    _esm = bundle_scripts() + _RENDER_SCRIPT
    _css = read_style_sheet()
    record = traitlets.Dict().tag(sync=True)
    live = traitlets.Bool().tag(sync=True)

    def __init__(self, record: AttentionRecord) -> None:
        super().__init__(record=viewer_document(record), live=record.rerun is not None)
        self._rerun = record.rerun
        self.on_msg(self._on_message)

    def _on_message(self, _: object, message: dict[str, Any], __: object) -> None:
        """Recompute the record with the requested changes and send it."""
        assert self._rerun, "only live widgets send messages"
        changes = {name: value for name, value in message["change"].items() if name in _CHANGEABLE_OPTIONS}
        try:
            self.send({"number": message["number"], "record": viewer_document(self._rerun(**changes))})
        except UserError as error:
            self.send({"number": message["number"], "error": str(error)})
