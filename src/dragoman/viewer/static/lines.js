// The same weights as lines between two columns of words.

import { make, plain } from "./dom.js";
import { at, pointed, pointOf, touched } from "./look.js";
import { asSvg, short, widthOf } from "./pen.js";

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
 * @typedef {{ rows: (Element | null)[], columns: (Element | null)[],
 *   lines: { element: Element | null, r: number, c: number, opacity: number }[] }} Parts what was drawn
 */

/**
 * Return the drawing of weights as lines.
 * @param {Table} table
 * @param {Theme} theme
 * @param {boolean} grey
 * @param {(parts: Parts) => void} [drawn] is given what was drawn
 * @returns {Drawing}
 */
export function linesDrawing({ values, rows, columns }, theme, grey, drawn) {
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
      /** @type {Parts} */
      const parts = { rows: [], columns: [], lines: [] };
      pen.text(left, 12, "looks", { size: 11, anchor: "end", fill: theme.faint });
      pen.text(right, 12, "is looked at", { size: 11, fill: theme.faint });
      rows.forEach((_, r) =>
        columns.forEach((column, c) => {
          const weight = values[r * columns.length + c] ?? 0;
          if (weight < FAINTEST) return;
          const stroke = grey && column.special ? theme.faint : theme.accent;
          const opacity = Math.min(1, Math.sqrt(weight)) * (grey && column.special ? 0.35 : 0.9);
          const element = pen.curve([left + 6, y(r)], [right - 6, y(c)], {
            stroke,
            width: 0.8 + 3.4 * weight,
            opacity,
          });
          parts.lines.push({ element, r, c, opacity });
        }),
      );
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
      drawn?.(parts);
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
  const element = make("div", { className: "dv-scroll" });
  /** @type {Parts} */
  let parts = { rows: [], columns: [], lines: [] };
  /** @type {Table} */
  let table;

  function paint() {
    const { kind, heads, units, grey } = store.state;
    table = inside.table(kind, heads, units);
    const svg = asSvg(linesDrawing(table, theme(), grey, (found) => (parts = found)));
    svg.setAttribute("class", "dv-lines");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "Weights as lines; the table has them as numbers");
    element.replaceChildren(svg);
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
    const { kind, point, partner } = store.state;
    const { row, column } = pointed(kind, point, partner);
    const rows = touched(table.rows, row);
    const columns = touched(table.columns, column);
    const within = (/** @type {[number, number] | null} */ range, /** @type {number} */ i) =>
      Boolean(range && i >= range[0] && i < range[1]);
    const any = Boolean(rows || columns);
    for (const { element, r, c, opacity } of parts.lines) {
      const lit = !any || ((!rows || within(rows, r)) && (!columns || within(columns, c)));
      element?.setAttribute("opacity", String(lit ? opacity : opacity * 0.08));
    }
    parts.rows.forEach((label, r) => label?.setAttribute("font-weight", within(rows, r) ? "700" : "400"));
    parts.columns.forEach((label, c) => label?.setAttribute("font-weight", within(columns, c) ? "700" : "400"));
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
