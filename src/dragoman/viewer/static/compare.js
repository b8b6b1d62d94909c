// Two records side by side, with the same scale and a shared pointer.

import { make } from "./dom.js";
import { KIND_INFO, headsLabel } from "./attention-data.js";
import { matrixPanel } from "./matrix.js";
import { sentencesPanel } from "./sentences.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./attention-data.js").HeadPosition} HeadPosition
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./attention-data.js").Kind} Kind
 * @typedef {import("./attention-data.js").AttentionRecord} AttentionRecord
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 */

/**
 * Show two records.
 * @param {{ name: string, data: AttentionData }[]} records
 * @param {Store} store
 * @param {() => Theme} theme
 * @param {((text: string) => void) | null} onSentence requests the record of another sentence
 */
export function comparePanel(records, store, theme, onSentence) {
  const note = make("p", { className: "dv-note" });
  const columns = records.map(({ name, data }) => {
    const text = sentencesPanel(data, store);
    const weights = matrixPanel(limitHeads(data), store, theme);
    const element = make(
      "section",
      { className: "dv-side" },
      ...(records.every((each) => each.name === name) ? [] : [make("h3", {}, name)]),
      text.element,
      weights.element,
    );
    return { element, text, weights };
  });
  const pair = make("div", { className: "dv-pair" }, ...columns.map((column) => column.element));
  const element = make("div", {}, note, ...(onSentence ? [sentenceForm(onSentence)] : []), pair);

  function describe() {
    const { kind, heads } = store.state;
    const [first] = records;
    if (!first) return;
    note.textContent =
      records.length > 1
        ? `${KIND_INFO[kind].name}, ${headsLabel(first.data, kind, heads)}, for both. Select heads in the Heads tab.`
        : "Enter another sentence to compare with this one.";
  }

  /** @param {Set<keyof State>} changes */
  function draw(changes) {
    columns.forEach(({ text, weights }) => (text.draw(changes), weights.draw(changes)));
    describe();
  }

  describe();
  return { element, draw, destroy: () => columns.forEach(({ weights }) => weights.destroy()) };
}

/**
 * Make a record ignore selected heads that it does not have.
 * @param {AttentionData} data
 */
function limitHeads(data) {
  const table = data.table.bind(data);
  data.table = (kind, heads, units) => {
    const { layers, heads: count } = data.record.kinds[kind];
    const existing = heads.filter(([layer, head]) => layer < layers && head < count);
    return table(kind, existing.length ? existing : data.allHeads(kind), units);
  };
  return data;
}

/** @param {(text: string) => void} onSentence */
function sentenceForm(onSentence) {
  const input = make("input", {
    type: "text",
    className: "dv-input",
    placeholder: "Sentence to compare with",
    dir: "auto",
  });
  input.setAttribute("aria-label", "Sentence to compare with");
  const form = make(
    "form",
    { className: "dv-row" },
    input,
    make("button", { type: "submit", className: "dv-button" }, "Compare"),
  );
  form.onsubmit = (event) => {
    event.preventDefault();
    if (input.value.trim()) onSentence(input.value.trim());
  };
  return form;
}
