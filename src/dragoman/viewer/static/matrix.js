// One large matrix of weights with its marginals, and the same weights as a table.

import { cssColour } from "./colours.js";
import { make, visiblePiece, makeTable } from "./dom.js";
import { at, headsLabel, formatPercent, axisPoints, unitPoint, unitRange } from "./attention-data.js";
import { drawOnCanvas, truncate, textWidth } from "./drawing-context.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./attention-data.js").Table} Table
 * @typedef {import("./drawing-context.js").Drawing} Drawing
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 * @typedef {{ cell: number, left: number, top: number, right: number, bottom: number }} MatrixLayout sizes in pixels
 */

const BAR = 34; // pixels of the longest bar of a marginal
const LETTER = 12;
const RECEIVED = "received"; // title of the marginal below the matrix

/**
 * Return the layout of a matrix that fits into a width.
 * @param {Table} table
 * @param {number} room
 * @returns {MatrixLayout}
 */
function matrixLayout({ rows, columns }, room) {
  const widest = (/** @type {import("./attention-data.js").Unit[]} */ units) =>
    Math.max(0, ...units.map((unit) => textWidth(truncate(visiblePiece(unit.label)), LETTER)));
  const left = Math.ceil(Math.max(widest(rows), textWidth(RECEIVED, 10))) + 14;
  const slant = Math.SQRT1_2 * widest(columns);
  const right = Math.max(BAR + 48, Math.ceil(slant));
  const cell = Math.floor(Math.min(32, Math.max(11, (room - left - right) / columns.length)));
  return { cell, left, top: Math.ceil(slant) + 20, right, bottom: BAR + 10 };
}

/**
 * Return the drawing of a matrix.
 * @param {Table} table
 * @param {MatrixLayout} layout
 * @param {Theme} theme
 * @param {boolean} grey whether ⟨start⟩ and ⟨end⟩ are drawn in grey
 * @returns {Drawing}
 */
export function matrixDrawing({ values, rows, columns }, layout, theme, grey) {
  const { cell, left, top, right, bottom } = layout;
  const [wide, high] = [columns.length * cell, rows.length * cell];
  const value = (/** @type {number} */ r, /** @type {number} */ c) => values[r * columns.length + c] ?? 0;
  return {
    width: left + wide + right,
    height: top + high + bottom,
    draw(context) {
      columns.forEach((unit, c) => {
        const fill = grey && unit.special ? theme.faint : theme.ink;
        const x = left + (c + 0.5) * cell;
        context.text(x + 2, top - 8, truncate(visiblePiece(unit.label)), { size: LETTER, turn: -45, fill });
      });
      rows.forEach((unit, r) => {
        const y = top + (r + 0.5) * cell;
        context.text(left - 8, y, truncate(visiblePiece(unit.label)), {
          size: LETTER,
          anchor: "end",
          fill: unit.special ? theme.faint : theme.ink,
        });
        columns.forEach((column, c) => {
          const fill = cssColour(value(r, c), theme, grey && column.special);
          context.rect(left + c * cell, top + r * cell, cell - 1, cell - 1, { fill, radius: cell > 16 ? 2 : 0 });
        });
        const outside = 1 - columns.reduce((sum, column, c) => sum + (column.special ? value(r, c) : 0), 0);
        bar(left + wide + 8, y - Math.min(5, cell / 3), BAR * Math.max(0, outside), Math.min(10, (2 * cell) / 3));
      });
      const got = columns.map((_, c) => rows.reduce((sum, _, r) => sum + value(r, c), 0));
      const most = Math.max(1e-9, ...got);
      columns.forEach((column, c) => {
        const thick = Math.min(10, (2 * cell) / 3);
        bar(
          left + (c + 0.5) * cell - thick / 2,
          top + high + 6,
          thick,
          (BAR * at(got, c)) / most,
          grey && column.special,
        );
      });
      context.text(left - 8, top + high + 12, RECEIVED, { size: 10, anchor: "end", fill: theme.faint });
      context.text(left + wide + 8, top - 8, "on words", { size: 10, fill: theme.faint });

      /**
       * @param {number} x
       * @param {number} y
       * @param {number} width
       * @param {number} height
       * @param {boolean} [pale]
       */
      function bar(x, y, width, height, pale = false) {
        context.rect(x, y, Math.max(0.5, width), Math.max(0.5, height), {
          fill: pale ? theme.line : theme.accent,
          opacity: 0.75,
          radius: 1,
        });
      }
    },
  };
}

/**
 * Show a matrix that follows the pointer and the keyboard.
 * @param {AttentionData} data
 * @param {Store} store
 * @param {() => Theme} theme
 */
export function matrixPanel(data, store, theme) {
  const canvas = make("canvas");
  const bands = { row: make("div", { className: "dv-band" }), column: make("div", { className: "dv-band" }) };
  const cells = make("div", { className: "dv-matrix", tabIndex: 0 }, canvas, bands.row, bands.column);
  const read = make("p", { className: "dv-read" });
  const element = make("div", {}, make("div", { className: "dv-scroll" }, cells), read);
  cells.setAttribute("role", "application");
  cells.setAttribute("aria-roledescription", "matrix");
  read.setAttribute("aria-live", "polite");
  /** @type {{ table: Table, layout: MatrixLayout } | null} */
  let shown = null;
  let cursor = { r: 0, c: 0 };
  let room = 0;

  function paint() {
    const { kind, heads, units, grey } = store.state;
    const table = data.table(kind, heads, units);
    const layout = matrixLayout(table, room || 720);
    shown = { table, layout };
    drawOnCanvas(matrixDrawing(table, layout, theme(), grey), canvas);
    cells.setAttribute("aria-label", `${headsLabel(data, kind, heads)}; use the arrow keys to read weights`);
    mark();
  }

  function mark() {
    if (!shown) return;
    const { kind, point, partner } = store.state;
    const { row, column } = axisPoints(kind, point, partner);
    const rows = unitRange(shown.table.rows, row);
    const columns = unitRange(shown.table.columns, column);
    const { cell, left, top } = shown.layout;
    const [wide, high] = [shown.table.columns.length * cell, shown.table.rows.length * cell];
    placeBand(bands.row, rows && { x: left, y: top + rows[0] * cell, width: wide, height: (rows[1] - rows[0]) * cell });
    placeBand(
      bands.column,
      columns && { x: left + columns[0] * cell, y: top, width: (columns[1] - columns[0]) * cell, height: high },
    );
    read.replaceChildren(...(rows && columns ? cellText(rows[0], columns[0]) : []));
  }

  /**
   * @param {number} r
   * @param {number} c
   */
  function cellText(r, c) {
    if (!shown) return [];
    const { rows, columns, values } = shown.table;
    const weight = values[r * columns.length + c] ?? 0;
    return [
      make("b", {}, at(rows, r).label.trim()),
      " attends to ",
      make("b", {}, at(columns, c).label.trim()),
      ` with weight ${weight.toFixed(3)}.`,
    ];
  }

  /**
   * @param {number} r
   * @param {number} c
   */
  function pointsAt(r, c) {
    if (!shown || !shown.table.rows[r] || !shown.table.columns[c]) return null;
    cursor = { r, c };
    const { kind } = store.state;
    const row = unitPoint(kind, "row", at(shown.table.rows, r));
    const column = unitPoint(kind, "column", at(shown.table.columns, c));
    return /** @type {const} */ ([row, { partner: column }]);
  }

  /** @param {PointerEvent | MouseEvent} event */
  function cellAt(event) {
    if (!shown) return null;
    const box = canvas.getBoundingClientRect();
    const { cell, left, top } = shown.layout;
    return pointsAt(
      Math.floor((event.clientY - box.top - top) / cell),
      Math.floor((event.clientX - box.left - left) / cell),
    );
  }

  cells.onpointermove = (event) => {
    const cell = cellAt(event);
    store.point(cell?.[0] ?? null, cell?.[1]);
  };
  cells.onpointerleave = () => store.point(null);
  cells.onclick = (event) => {
    const cell = cellAt(event);
    if (cell) store.lock(...cell);
  };
  cells.onkeydown = (event) => {
    /** @type {Record<string, [number, number]>} */
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Enter: [0, 0] };
    const step = steps[event.key];
    const target = step && pointsAt(cursor.r + step[0], cursor.c + step[1]);
    if (!target) return;
    event.preventDefault();
    if (event.key === "Enter") store.lock(...target);
    else store.point(...target);
  };

  const observer = new ResizeObserver(([entry]) => {
    const width = Math.floor(entry?.contentRect.width ?? 0);
    if (!width || Math.abs(width - room) < 4) return;
    room = width;
    paint();
  });
  observer.observe(element);

  /** @param {Set<keyof State>} changes */
  function draw(changes) {
    const keys = /** @type {(keyof State)[]} */ (["kind", "heads", "units", "grey", "theme"]);
    if (keys.some((key) => changes.has(key))) paint();
    else if (changes.has("point") || changes.has("partner")) mark();
  }

  /** @returns {Drawing} */
  const drawing = () => {
    const { kind, heads, units, grey } = store.state;
    const table = data.table(kind, heads, units);
    return matrixDrawing(table, matrixLayout(table, 900), theme(), grey);
  };

  paint();
  return { element, draw, drawing, destroy: () => observer.disconnect() };
}

/**
 * @param {HTMLElement} band
 * @param {{ x: number, y: number, width: number, height: number } | null} box
 */
function placeBand(band, box) {
  band.hidden = !box;
  if (!box) return;
  band.style.transform = `translate(${box.x - 1}px, ${box.y - 1}px)`;
  band.style.width = `${box.width + 1}px`;
  band.style.height = `${box.height + 1}px`;
}

/**
 * Return the selected weights as a table.
 * @param {AttentionData} data
 * @param {State} state
 */
export function matrixTable(data, { kind, heads, units }) {
  const { values, rows, columns } = data.table(kind, heads, units);
  const line = (/** @type {number} */ r) => columns.map((_, c) => (values[r * columns.length + c] ?? 0).toFixed(2));
  /** @type {[string, ...string[]][]} */
  const body = rows.map((row, r) => [row.label, ...line(r)]);
  return makeTable(
    headsLabel(data, kind, heads),
    columns.map((unit) => unit.label),
    body,
  );
}

/**
 * Return the selected weights as comma-separated values.
 * @param {AttentionData} data
 * @param {State} state
 */
export function matrixCsv(data, { kind, heads, units }) {
  const { values, rows, columns } = data.table(kind, heads, units);
  const lines = rows.map((row, r) => [
    row.label,
    ...columns.map((_, c) => (values[r * columns.length + c] ?? 0).toFixed(4)),
  ]);
  return csv([["", ...columns.map((unit) => unit.label)], ...lines]);
}

/**
 * Format rows as comma-separated values.
 * @param {(string | number)[][]} rows
 */
export function csv(rows) {
  const cell = (/** @type {string | number} */ value) => {
    const text = String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/**
 * Return a note about the share of the greyed weight.
 * @param {{ mass: number, names: string[] }} sinks
 */
export const sinkNote = ({ mass, names }) =>
  names.length ? `${formatPercent(mass)} of this weight is on ${names.join(" and ")}` : "";
