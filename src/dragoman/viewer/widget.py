"""The viewer as a notebook widget, on anywidget: one that can ask for another look. Comes with the extra `notebook`."""

from typing import Any

import anywidget
import traitlets

from dragoman.errors import UserError
from dragoman.viewer.document import contents
from dragoman.viewer.page import bundle, style
from dragoman.viewer.record import AttentionRecord

# A question goes to Python as a message with a number, and the answer comes back with the same.
RENDER = """
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


class LookWidget(anywidget.AnyWidget):
    """Shows one record; heads can be switched off and beginnings chosen if the record can be made again."""

    _esm = bundle() + RENDER
    _css = style()
    look = traitlets.Dict().tag(sync=True)
    live = traitlets.Bool().tag(sync=True)

    def __init__(self, record: AttentionRecord) -> None:
        super().__init__(look=contents(record), live=record.again is not None)
        self.record = record
        self.on_msg(self.answer)

    def answer(self, _: object, question: dict[str, Any], __: object) -> None:
        """Look once more with what was changed, and send it back."""
        try:
            assert self.record.again, "only a live widget asks"
            found = self.record.again(**allowed(question["change"]))
            self.send({"number": question["number"], "look": contents(found)})
        except UserError as error:
            self.send({"number": question["number"], "error": str(error)})


def allowed(change: dict[str, Any]) -> dict[str, Any]:
    """Return what a page may change about a look."""
    return {name: change[name] for name in ("text", "prefix", "without", "trace") if name in change}


def widget(record: AttentionRecord) -> LookWidget:
    """Return a widget of the record."""
    return LookWidget(record)
