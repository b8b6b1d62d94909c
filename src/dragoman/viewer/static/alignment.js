// Word alignment: links between source and output words, by the selected method.

import { cssColour } from "./colours.js";
import { button, radioGroup, make, makeTable } from "./dom.js";
import { at, formatPercent } from "./attention-data.js";
import { csv } from "./matrix.js";
import { toSvg, textWidth } from "./drawing-context.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./attention-data.js").Link} Link
 * @typedef {import("./attention-data.js").Side} Side
 * @typedef {import("./attention-data.js").Unit} Unit
 * @typedef {import("./drawing-context.js").Drawing} Drawing
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 * @typedef {{ words: Record<Side, (Element | null)[]>, links: (Element | null)[] }} Parts
 */

const SIZE = 18;
const GAP = 18;
const ROW = 26;

/** @type {Record<string, string>} */
const NAMES = { mean: "Mean", "arg-max": "Arg-max", shifted: "Shift-Att" };

/**
 * Return the words of both sides, without ⟨start⟩ and ⟨end⟩.
 * @param {AttentionData} data
 * @returns {Record<Side, Unit[]>}
 */
export function textWords({ record }) {
  return {
    source: record.source.words.filter((word) => !word.special),
    target: record.target.words.filter((word) => !word.special),
  };
}

/**
 * Return the drawing of the links: two rows if they fit into the width, otherwise two columns.
 * @param {Record<Side, Unit[]>} words
 * @param {Link[]} links
 * @param {Theme} theme
 * @param {number} available width in pixels
 * @param {boolean} reversed whether the text runs from right to left
 * @param {(parts: Parts) => void} [drawn]
 * @returns {Drawing}
 */
export function alignmentDrawing(words, links, theme, available, reversed, drawn) {
  const widths = {
    source: words.source.map((word) => textWidth(word.label, SIZE)),
    target: words.target.map((word) => textWidth(word.label, SIZE)),
  };
  const total = (/** @type {Side} */ side) => widths[side].reduce((sum, width) => sum + width + GAP, 0);
  const flat = Math.max(total("source"), total("target")) <= available;
  const longest = (/** @type {Side} */ side) => Math.max(0, ...widths[side]);
  const width = flat ? Math.max(total("source"), total("target")) + 4 : longest("source") + longest("target") + 200;
  const height = flat ? 200 : ROW * Math.max(words.source.length, words.target.length) + 10;

  /** @type {(side: Side) => [number, number][]} positions of the words: their centre, or their inner edge */
  const wordPositions = (side) => {
    if (!flat)
      return words[side].map((_, i) => [
        side === "source" ? longest("source") : width - longest("target"),
        (i + 0.6) * ROW,
      ]);
    let x = (Math.max(total("source"), total("target")) - total(side)) / 2;
    return widths[side].map((wide) => {
      const middle = x + GAP / 2 + wide / 2;
      x += wide + GAP;
      return [reversed ? width - middle : middle, side === "source" ? 16 : 182];
    });
  };

  return {
    width,
    height,
    draw(context) {
      const positions = { source: wordPositions("source"), target: wordPositions("target") };
      /** @type {Parts} */
      const parts = { words: { source: [], target: [] }, links: [] };
      for (const [source, target, weight] of links) {
        const [[x, y], [toX, toY]] = [at(positions.source, source), at(positions.target, target)];
        /** @type {[[number, number], [number, number]]} */
        const ends = flat
          ? [
              [x, y + 15],
              [toX, toY - 15],
            ]
          : [
              [x + 8, y],
              [toX - 8, toY],
            ];
        const stroke = cssColour(0.25 + 0.75 * weight, theme);
        parts.links.push(context.curve(...ends, { stroke, width: 1.2 + 3 * weight, opacity: 0.9 }, flat));
      }
      for (const side of /** @type {Side[]} */ (["source", "target"])) {
        const anchor = flat ? "middle" : side === "source" ? "end" : "start";
        positions[side].forEach(([x, y], i) =>
          parts.words[side].push(context.text(x, y, at(words[side], i).label, { size: SIZE, anchor, fill: theme.ink })),
        );
      }
      drawn?.(parts);
    },
  };
}

/**
 * Show the word alignment.
 * @param {AttentionData} data
 * @param {Store} store
 * @param {() => Theme} theme
 */
export function alignmentPanel(data, store, theme) {
  const { methods, gold } = data.record.alignment;
  const words = textWords(data);
  const names = Object.keys(methods);
  const description = make("p", { className: "dv-note" });
  const picture = make("div", { className: "dv-scroll" });
  const format = make("code", { className: "dv-code", tabIndex: 0 });
  const numbering = make(
    "p",
    { className: "dv-note" },
    "Each pair is source-target. Words are numbered from 0; punctuation marks count as words.",
  );
  const copy = button("Copy", () => void navigator.clipboard?.writeText(format.textContent ?? ""));
  const methodChoice = radioGroup(
    "Method",
    names.map((name) => [name, NAMES[name] ?? name]),
    store.state.method,
    (method) => store.set({ method }),
  );
  const pharaoh = make("div", { className: "dv-row" }, make("span", { className: "dv-note" }, "Pharaoh"), format, copy);
  const element = make(
    "div",
    {},
    make("div", { className: "dv-row" }, methodChoice.element, description),
    picture,
    pharaoh,
    numbering,
  );
  /** @type {Parts} */
  let parts = { words: { source: [], target: [] }, links: [] };
  let room = 0;

  const method = () => methods[store.state.method] ?? at(Object.values(methods), 0);
  const reversed = () =>
    picture.closest("[dir=rtl]") !== null || isRightToLeft(data.record.source.text + data.record.target.text);

  function paint() {
    const { links, description: summary, pharaoh: text, error_rate: rate } = method();
    const errorRate = gold !== null && rate !== null ? ` Alignment error rate: ${formatPercent(rate)}.` : "";
    description.textContent = `${summary}.${errorRate}`;
    format.textContent = text || "no links";
    const svg = toSvg(alignmentDrawing(words, links, theme(), room || 700, reversed(), (drawn) => (parts = drawn)));
    svg.setAttribute("role", "img");
    svg.setAttribute("class", "dv-alignment");
    svg.setAttribute("aria-label", `Word alignment: ${text}`);
    picture.replaceChildren(svg);
    for (const side of /** @type {Side[]} */ (["source", "target"])) {
      parts.words[side].forEach((label, i) => {
        if (!(label instanceof SVGElement)) return;
        const { first, end } = at(words[side], i);
        label.onpointerenter = () => store.point({ side, first, end });
        label.onpointerleave = () => store.point(null);
        label.onclick = () => store.lock({ side, first, end });
      });
    }
    parts.links.forEach((line, i) => {
      if (!(line instanceof SVGElement)) return;
      const [source, target] = at(links, i);
      const ends = /** @type {const} */ ([
        { side: "target", first: at(words.target, target).first, end: at(words.target, target).end },
        { partner: { side: "source", first: at(words.source, source).first, end: at(words.source, source).end } },
      ]);
      line.onpointerenter = () => store.point(...ends);
      line.onpointerleave = () => store.point(null);
      line.onclick = () => store.lock(...ends);
    });
    mark();
  }

  function mark() {
    const { point, partner } = store.state;
    const touches = (/** @type {Side} */ side, /** @type {number} */ i) =>
      [point, partner].some(
        (each) => each?.side === side && each.first < at(words[side], i).end && each.end > at(words[side], i).first,
      );
    const any = Boolean(point || partner);
    const { links } = method();
    const lit = { source: new Set(), target: new Set() };
    parts.links.forEach((line, i) => {
      const [source, target] = at(links, i);
      const both =
        point && partner
          ? touches("source", source) && touches("target", target)
          : touches("source", source) || touches("target", target);
      line?.setAttribute("opacity", !any ? "0.9" : both ? "1" : "0.12");
      if (any && both) (lit.source.add(source), lit.target.add(target));
    });
    for (const side of /** @type {Side[]} */ (["source", "target"])) {
      parts.words[side].forEach((label, i) =>
        label?.setAttribute("font-weight", lit[side].has(i) || (any && touches(side, i)) ? "700" : "400"),
      );
    }
  }

  const observer = new ResizeObserver(([entry]) => {
    const width = Math.floor(entry?.contentRect.width ?? 0);
    if (!width || width === room) return;
    room = width;
    paint();
  });
  observer.observe(element);

  /** @param {Set<keyof State>} changes */
  function draw(changes) {
    if (changes.has("method")) methodChoice.update(store.state.method);
    if (changes.has("method") || changes.has("theme")) paint();
    else if (changes.has("point") || changes.has("partner")) mark();
  }

  paint();
  return {
    element,
    draw,
    drawing: () => alignmentDrawing(words, method().links, theme(), 1400, reversed()),
    table: () => makeTable("Word alignment", ["source", "target", "weight"], linkRows(method().links, words)),
    csv: () =>
      csv([
        ["source", "target", "source word", "target word", "weight"],
        ...method().links.map(([s, t, w]) => [s, t, at(words.source, s).label, at(words.target, t).label, w]),
      ]),
    destroy: () => observer.disconnect(),
  };
}

/**
 * @param {Link[]} links
 * @param {Record<Side, Unit[]>} words
 * @returns {[string, ...string[]][]}
 */
const linkRows = (links, words) =>
  links.map(([s, t, weight]) => [`${s}-${t}`, at(words.source, s).label, at(words.target, t).label, weight.toFixed(2)]);

/**
 * Return whether a text is written from right to left, by its first letter.
 * @param {string} text
 */
export function isRightToLeft(text) {
  const letter = /\p{L}/u.exec(text)?.[0] ?? "";
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter);
}
