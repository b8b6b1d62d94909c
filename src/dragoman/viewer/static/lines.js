// The same weights as lines between two columns of words.

import { make, plain } from "./dom.js";
import { at, pointed, pointOf, touched } from "./look.js";
import { asSvg, onCanvas, short, SvgPen, widthOf } from "./pen.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./look.js").Inside} Inside
 * @typedef {import("./look.js").Table} Table
 * @typedef {import("./pen.js").Drawing} Drawing
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 */

const STEP = 24; // pixels from word to word
const FAINTEST = 0.02; // weights below this are not drawn

/**
 * @typedef {{ rows: (Element | null)[], columns: (Element | null)[] }} Labels that were drawn
 */

/**
 * Return the drawing of weights as lines.
 * @param {Table} table
 * @param {Theme} theme
 * @param {boolean} grey
 * @param {{ only?: (r: number, c: number) => boolean, drawn?: ((labels: Labels) => void) | null }} [how] which lines;
 *   drawn is given the labels, or is null where there shall be none
 * @returns {Drawing}
 */
export function linesDrawing({ values, rows, columns }, theme, grey, { only = () => true, drawn = () => {} } = {}) {
  const widest = (/** @type {import("./look.js").Unit[]} */ units) =>
    Math.ceil(Math.max(0, ...units.map((unit) => widthOf(short(plain(unit.label), 24), 14))));
  const left = widest(rows) + 14;
  const right = left + 240;
  const height = STEP * Math.max(rows.length, columns.length) + 34;
  const y = (/** @type {number} */ i) => 34 + (i + 0.5) * STEP;
  return {
    width: right + widest(columns) + 20,
    height: height + 6,
    draw(pen) {
      /** @type {Labels} */
      const parts = { rows: [], columns: [] };
      rows.forEach((_, r) =>
        columns.forEach((column, c) => {
          const weight = values[r * columns.length + c] ?? 0;
          if (weight < FAINTEST || !only(r, c)) return;
          const stroke = grey && column.special ? theme.faint : theme.accent;
          const opacity = Math.min(1, Math.sqrt(weight)) * (grey && column.special ? 0.35 : 0.9);
          pen.curve([left + 6, y(r)], [right - 6, y(c)], {
            stroke,
            width: 0.8 + 3.4 * weight,
            opacity,
          });
        }),
      );
      if (!drawn) return;
      pen.text(left, 12, "looks", { size: 11, anchor: "end", fill: theme.faint });
      pen.text(right, 12, "is looked at", { size: 11, fill: theme.faint });
      rows.forEach((unit, r) =>
        parts.rows.push(
          pen.text(left, y(r), short(plain(unit.label), 24), {
            size: 14,
            anchor: "end",
            fill: unit.special ? theme.faint : theme.ink,
          }),
        ),
      );
      columns.forEach((unit, c) =>
        parts.columns.push(
          pen.text(right, y(c), short(plain(unit.label), 24), {
            size: 14,
            fill: unit.special ? theme.faint : theme.ink,
          }),
        ),
      );
      drawn(parts);
    },
  };
}

/**
 * Show weights as lines that answer to the pointer.
 * @param {Inside} inside
 * @param {Store} store
 * @param {() => Theme} theme
 */
export function lines(inside, store, theme) {
  // All lines are drawn once, on a canvas that pales; those that are pointed at are drawn over it.
  const all = make("canvas");
  const over = make("div", { className: "dv-over" });
  const element = make("div", { className: "dv-scroll" }, make("div", { className: "dv-layers" }, all, over));
  /** @type {Labels} */
  let parts = { rows: [], columns: [] };
  /** @type {Table} */
  let table;
  /** @type {SVGElement | null} */
  let lit = null;

  function paint() {
    const { kind, heads, units, grey } = store.state;
    table = inside.table(kind, heads, units);
    onCanvas(linesDrawing(table, theme(), grey, { drawn: null }), all);
    const drawn = (/** @type {Labels} */ found) => void (parts = found);
    const svg = asSvg(linesDrawing(table, theme(), grey, { only: () => false, drawn }));
    svg.setAttribute("class", "dv-lines");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "Weights as lines; the table has them as numbers");
    lit = svg.insertBefore(document.createElementNS("http://www.w3.org/2000/svg", "g"), svg.firstChild);
    over.replaceChildren(svg);
    parts.rows.forEach((label, r) => listen(label, "row", r));
    parts.columns.forEach((label, c) => listen(label, "column", c));
    mark();
  }

  /**
   * @param {Element | null} label
   * @param {"row" | "column"} axis
   * @param {number} place
   */
  function listen(label, axis, place) {
    if (!(label instanceof SVGElement)) return;
    const unit = at(axis === "row" ? table.rows : table.columns, place);
    const point = pointOf(store.state.kind, axis, unit);
    // In self-attention both sides are the same sentence; a column is then the partner of nobody yet.
    const own = axis === "column" && store.state.kind !== "cross";
    const [here, more] = own ? [null, { partner: point }] : [point, {}];
    label.onpointerenter = () => store.point(here, more);
    label.onpointerleave = () => store.point(null);
    label.onclick = () => store.lock(here, more);
  }

  function mark() {
    const { kind, point, partner, grey } = store.state;
    const { row, column } = pointed(kind, point, partner);
    const rows = touched(table.rows, row);
    const columns = touched(table.columns, column);
    const within = (/** @type {[number, number] | null} */ range, /** @type {number} */ i) =>
      Boolean(range && i >= range[0] && i < range[1]);
    const any = Boolean(rows || columns);
    const only = (/** @type {number} */ r, /** @type {number} */ c) =>
      any && (!rows || within(rows, r)) && (!columns || within(columns, c));
    all.style.opacity = any ? "0.1" : "1";
    lit?.replaceChildren();
    if (any && lit) linesDrawing(table, theme(), grey, { only, drawn: null }).draw(new SvgPen(lit));
    parts.rows.forEach((label, r) => embolden(label, within(rows, r)));
    parts.columns.forEach((label, c) => embolden(label, within(columns, c)));
  }

  /** @param {Set<keyof State>} changes */
  function draw(changes) {
    const keys = /** @type {(keyof State)[]} */ (["kind", "heads", "units", "grey", "theme"]);
    if (keys.some((key) => changes.has(key))) paint();
    else if (changes.has("point") || changes.has("partner")) mark();
  }

  const drawing = () =>
    linesDrawing(inside.table(store.state.kind, store.state.heads, store.state.units), theme(), store.state.grey);
  paint();
  return { element, draw, drawing };
}

/**
 * @param {Element | null} label
 * @param {boolean} bold
 */
function embolden(label, bold) {
  const weight = bold ? "700" : "400";
  if (label && label.getAttribute("font-weight") !== weight) label.setAttribute("font-weight", weight);
}
