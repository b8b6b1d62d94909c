// The weights as lines between two columns of words.

import { make, visiblePiece } from "./dom.js";
import { at, axisPoints, unitPoint, unitRange } from "./attention-data.js";
import { toSvg, drawOnCanvas, truncate, SvgContext, textWidth } from "./drawing-context.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./attention-data.js").Table} Table
 * @typedef {import("./drawing-context.js").Drawing} Drawing
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 */

const STEP = 24; // pixels between words
const MIN_LINE_WEIGHT = 0.02; // lighter lines are not drawn

/**
 * @typedef {{ rows: (Element | null)[], columns: (Element | null)[] }} Labels that were drawn
 */

/**
 * Return the drawing of weights as lines.
 * @param {Table} table
 * @param {Theme} theme
 * @param {boolean} grey
 * @param {{ only?: (r: number, c: number) => boolean, drawn?: ((labels: Labels) => void) | null }} [options] which lines;
 *   drawn receives the labels; null draws none
 * @returns {Drawing}
 */
export function linesDrawing({ values, rows, columns }, theme, grey, { only = () => true, drawn = () => {} } = {}) {
  const widest = (/** @type {import("./attention-data.js").Unit[]} */ units) =>
    Math.ceil(Math.max(0, ...units.map((unit) => textWidth(truncate(visiblePiece(unit.label), 24), 14))));
  const left = widest(rows) + 14;
  const right = left + 240;
  const height = STEP * Math.max(rows.length, columns.length) + 34;
  const y = (/** @type {number} */ i) => 34 + (i + 0.5) * STEP;
  return {
    width: right + widest(columns) + 20,
    height: height + 6,
    draw(context) {
      /** @type {Labels} */
      const parts = { rows: [], columns: [] };
      rows.forEach((_, r) =>
        columns.forEach((column, c) => {
          const weight = values[r * columns.length + c] ?? 0;
          if (weight < MIN_LINE_WEIGHT || !only(r, c)) return;
          const stroke = grey && column.special ? theme.faint : theme.accent;
          const opacity = Math.min(1, Math.sqrt(weight)) * (grey && column.special ? 0.35 : 0.9);
          context.curve([left + 6, y(r)], [right - 6, y(c)], {
            stroke,
            width: 0.8 + 3.4 * weight,
            opacity,
          });
        }),
      );
      if (!drawn) return;
      context.text(left, 12, "query", { size: 11, anchor: "end", fill: theme.faint });
      context.text(right, 12, "key", { size: 11, fill: theme.faint });
      rows.forEach((unit, r) =>
        parts.rows.push(
          context.text(left, y(r), truncate(visiblePiece(unit.label), 24), {
            size: 14,
            anchor: "end",
            fill: unit.special ? theme.faint : theme.ink,
          }),
        ),
      );
      columns.forEach((unit, c) =>
        parts.columns.push(
          context.text(right, y(c), truncate(visiblePiece(unit.label), 24), {
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
 * Show weights as lines that follow the pointer.
 * @param {AttentionData} data
 * @param {Store} store
 * @param {() => Theme} theme
 */
export function linesPanel(data, store, theme) {
  // All lines are drawn once on a canvas, which fades while hovered lines are drawn above it.
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
    table = data.table(kind, heads, units);
    drawOnCanvas(linesDrawing(table, theme(), grey, { drawn: null }), all);
    const drawn = (/** @type {Labels} */ labels) => void (parts = labels);
    const svg = toSvg(linesDrawing(table, theme(), grey, { only: () => false, drawn }));
    svg.setAttribute("class", "dv-lines");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "Attention weights as lines; the Table view shows the numbers");
    lit = svg.insertBefore(document.createElementNS("http://www.w3.org/2000/svg", "g"), svg.firstChild);
    over.replaceChildren(svg);
    parts.rows.forEach((label, r) => addHandlers(label, "row", r));
    parts.columns.forEach((label, c) => addHandlers(label, "column", c));
    mark();
  }

  /**
   * @param {Element | null} label
   * @param {"row" | "column"} axis
   * @param {number} index
   */
  function addHandlers(label, axis, index) {
    if (!(label instanceof SVGElement)) return;
    const unit = at(axis === "row" ? table.rows : table.columns, index);
    const point = unitPoint(store.state.kind, axis, unit);
    // In self-attention both sides are the same sentence, so a column is stored as the partner.
    const own = axis === "column" && store.state.kind !== "cross";
    const [here, more] = own ? [null, { partner: point }] : [point, {}];
    label.onpointerenter = () => store.point(here, more);
    label.onpointerleave = () => store.point(null);
    label.onclick = () => store.lock(here, more);
  }

  function mark() {
    const { kind, point, partner, grey } = store.state;
    const { row, column } = axisPoints(kind, point, partner);
    const rows = unitRange(table.rows, row);
    const columns = unitRange(table.columns, column);
    const within = (/** @type {[number, number] | null} */ range, /** @type {number} */ i) =>
      Boolean(range && i >= range[0] && i < range[1]);
    const any = Boolean(rows || columns);
    const only = (/** @type {number} */ r, /** @type {number} */ c) =>
      any && (!rows || within(rows, r)) && (!columns || within(columns, c));
    all.style.opacity = any ? "0.1" : "1";
    lit?.replaceChildren();
    if (any && lit) linesDrawing(table, theme(), grey, { only, drawn: null }).draw(new SvgContext(lit));
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
    linesDrawing(data.table(store.state.kind, store.state.heads, store.state.units), theme(), store.state.grey);
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
