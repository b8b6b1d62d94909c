// Two looks side by side, on one scale and under one pointer.

import { make } from "./dom.js";
import { ABOUT, nameOf } from "./look.js";
import { matrix } from "./matrix.js";
import { sentences } from "./sentences.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./look.js").HeadPlace} HeadPlace
 * @typedef {import("./look.js").Inside} Inside
 * @typedef {import("./look.js").Kind} Kind
 * @typedef {import("./look.js").Look} Look
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 */

/**
 * Show two looks.
 * @param {{ name: string, inside: Inside }[]} looks
 * @param {Store} store
 * @param {() => Theme} theme
 * @param {((text: string) => void) | null} other asks for another sentence
 */
export function compared(looks, store, theme, other) {
  const named = make("p", { className: "dv-note" });
  const columns = looks.map(({ name, inside }) => {
    const text = sentences(inside, store);
    const weights = matrix(fitting(inside), store, theme);
    const element = make(
      "section",
      { className: "dv-side" },
      ...(looks.every((each) => each.name === name) ? [] : [make("h3", {}, name)]),
      text.element,
      weights.element,
    );
    return { element, text, weights };
  });
  const pair = make("div", { className: "dv-pair" }, ...columns.map((column) => column.element));
  const element = make("div", {}, named, ...(other ? [asking(other)] : []), pair);

  function describe() {
    const { kind, heads } = store.state;
    const [first] = looks;
    if (!first) return;
    named.textContent =
      looks.length > 1
        ? `${ABOUT[kind].name}, ${nameOf(first.inside, kind, heads)}, of both. Choose others under Heads.`
        : "Nothing to compare with yet.";
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
 * Let a look of another size show the nearest it has: heads that it lacks are left out.
 * @param {Inside} inside
 */
function fitting(inside) {
  const table = inside.table.bind(inside);
  inside.table = (kind, heads, units) => {
    const { layers, heads: count } = inside.look.kinds[kind];
    const there = heads.filter(([layer, head]) => layer < layers && head < count);
    return table(kind, there.length ? there : inside.everyHead(kind), units);
  };
  return inside;
}

/** @param {(text: string) => void} other */
function asking(other) {
  const input = make("input", {
    type: "text",
    className: "dv-input",
    placeholder: "Another sentence to compare with",
    dir: "auto",
  });
  input.setAttribute("aria-label", "Another sentence to compare with");
  const form = make(
    "form",
    { className: "dv-row" },
    input,
    make("button", { type: "submit", className: "dv-button" }, "Compare"),
  );
  form.onsubmit = (event) => {
    event.preventDefault();
    if (input.value.trim()) other(input.value.trim());
  };
  return form;
}
