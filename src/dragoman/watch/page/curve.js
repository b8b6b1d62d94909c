// One chart: a responsive SVG, a cursor that all charts share, and a text alternative.

import {make, svgElement} from "../../viewer/static/dom.js";
import {logTicks, formatValue, formatTick, ticks, formatInteger} from "./numbers.js";

/** @typedef {import("./summary.js").Lines} Lines @typedef {import("./summary.js").Point} Point */
/** @typedef {{title: string, description: string, log?: boolean, zero?: boolean}} ChartOptions */
/** @typedef {{left: number, right: number, top: number, bottom: number}} Frame */

const HEIGHT = 190;
/** @type {Frame} */
const MARGIN = {left: 46, right: 12, top: 10, bottom: 22};
const DOTS = 60; // more validations than this are drawn without dots

export class Curve {
  /**
   * @param {ChartOptions} options
   * @param {(step: number | null) => void} onCursor called when the cursor moves
   */
  constructor(options, onCursor) {
    this.options = options;
    this.onCursor = onCursor;
    /** @type {Lines} */
    this.lines = {};
    /** @type {[first: number, last: number]} */
    this.span = [0, 1];
    /** @type {number | null} */
    this.step = null;
    this.latest = make("span", {className: "latest"});
    this.read = make("p", {className: "read"});
    this.svg = svgElement("svg", {class: "plot", height: HEIGHT, role: "presentation"});
    this.slider = make("div", {className: "slider"}, this.svg);
    this.slider.tabIndex = 0;
    this.slider.setAttribute("role", "slider");
    this.heading = make("h3");
    this.setTitle(options.title);
    const head = make("div", {className: "curve-head"}, this.heading, this.latest);
    this.element = make("article", {className: "curve"}, head, this.slider, this.read);
    this.slider.addEventListener("pointermove", (event) => this.onCursor(this.stepAt(event.offsetX)));
    this.slider.addEventListener("pointerdown", (event) => this.onCursor(this.stepAt(event.offsetX)));
    this.slider.addEventListener("pointerleave", () => this.onCursor(null));
    this.slider.addEventListener("keydown", (event) => this.key(event));
    this.slider.addEventListener("blur", () => this.onCursor(null));
    new ResizeObserver(() => this.draw()).observe(this.slider);
  }

  /** @param {string} title */
  setTitle(title) {
    this.heading.textContent = title;
    this.slider.setAttribute("aria-label", `${title}, ${this.options.description}; use the arrow keys to move between steps`);
  }

  /** Show lines over a range of steps that all charts share. @param {Lines} lines @param {[number, number]} span */
  show(lines, span) {
    this.lines = lines;
    this.span = span;
    this.element.hidden = this.steps.length === 0;
    this.draw();
    this.updateText();
  }

  /** Follow the cursor of all curves. @param {number | null} step */
  follow(step) {
    this.step = step;
    this.drawCursor();
    this.updateText();
  }

  /** All steps at which there is something to read, in order. @returns {number[]} */
  get steps() {
    return [...new Set(Object.values(this.lines).flatMap((points) => points.map(([step]) => step)))].sort((a, b) => a - b);
  }

  /** Move the cursor by keys. @param {KeyboardEvent} event */
  key(event) {
    const steps = this.steps;
    const far = Math.max(1, Math.round(steps.length / 10));
    const moves = /** @type {Record<string, number>} */ ({
      ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -far, PageUp: far, Home: -1e9, End: 1e9,
    });
    if (event.key === "Escape") this.onCursor(null);
    if (!(event.key in moves) || !steps.length) return;
    event.preventDefault();
    const at = this.step === null ? steps.length - 1 : nearest(steps, this.step);
    this.onCursor(steps[Math.min(steps.length - 1, Math.max(0, at + (moves[event.key] ?? 0)))] ?? null);
  }

  /** Return the step nearest to an x coordinate. @param {number} x @returns {number | null} */
  stepAt(x) {
    const steps = this.steps;
    if (!steps.length) return null;
    const {low, high} = this.range();
    const width = this.svg.clientWidth - MARGIN.left - MARGIN.right;
    return steps[nearest(steps, low + ((x - MARGIN.left) / width) * (high - low))] ?? null;
  }

  /** @returns {{low: number, high: number}} the first and the last step */
  range() {
    const [low, high] = this.span;
    return high > low ? {low, high} : {low: low - 1, high: high + 1};
  }

  /** @returns {{low: number, high: number, log: boolean}} the range of the axis */
  values() {
    const all = Object.values(this.lines).flatMap((points) => points.map(([, value]) => value));
    const log = Boolean(this.options.log) && Math.min(...all) > 0 && Math.max(...all) / Math.min(...all) > 20;
    let low = this.options.zero && !log ? 0 : Math.min(...all), high = Math.max(...all);
    if (high - low < 1e-12) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const room = log ? 0 : (high - low) * 0.05;
    return {low: this.options.zero && !log ? 0 : low - room, high: high + room, log};
  }

  /** Draw the chart. */
  draw() {
    const width = this.svg.clientWidth || this.slider.clientWidth;
    this.svg.replaceChildren();
    if (!width || !this.steps.length) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const x = this.range(), y = this.values();
    const scale = (/** @type {number} */ value) => (y.log ? Math.log(value) : value);
    this.x = (/** @type {number} */ step) =>
      MARGIN.left + ((step - x.low) / (x.high - x.low)) * (width - MARGIN.left - MARGIN.right);
    this.y = (/** @type {number} */ value) =>
      HEIGHT - MARGIN.bottom - ((scale(value) - scale(y.low)) / (scale(y.high) - scale(y.low))) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    this.drawAxes(width, x, y);
    for (const [name, points] of Object.entries(this.lines)) this.drawLine(name, points);
    this.cursor = svgElement("g", {class: "cursor"});
    this.svg.append(this.cursor);
    this.drawCursor();
  }

  /**
   * Draw the axes.
   * @param {number} width
   * @param {{low: number, high: number}} x
   * @param {{low: number, high: number, log: boolean}} y
   */
  drawAxes(width, x, y) {
    if (!this.x || !this.y) return;
    for (const value of y.log ? logTicks(y.low, y.high) : ticks(y.low, y.high, 4)) {
      const y = this.y(value);
      this.svg.append(svgElement("line", {class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y}));
      this.svg.append(label(MARGIN.left - 6, y + 4, "end", formatTick(value)));
    }
    const steps = ticks(x.low, x.high, Math.max(3, Math.floor(width / 80))).filter((step) => Number.isInteger(step));
    for (const step of steps) {
      this.svg.append(label(Math.min(this.x(step), width - 16), HEIGHT - 5, "middle", formatInteger(step)));
    }
  }

  /** @param {string} name @param {Point[]} points */
  drawLine(name, points) {
    const {x, y} = this;
    if (!x || !y || !points.length) return;
    const path = points.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    this.svg.append(svgElement("path", {class: `line ${name}`, d: path}));
    if (points.length <= (name === "validation" ? DOTS : 1)) {
      this.svg.append(...points.map(([step, value]) => svgElement("circle", {class: `dot ${name}`, cx: x(step), cy: y(value), r: 3})));
    }
  }

  /** Draw the cursor. */
  drawCursor() {
    const {cursor, x, y} = this;
    if (!cursor || !x || !y) return;
    cursor.replaceChildren();
    if (this.step === null) return;
    cursor.append(svgElement("line", {x1: x(this.step), x2: x(this.step), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom}));
    for (const [name, points] of Object.entries(this.lines)) {
      const at = valueAt(points, this.step);
      if (at) cursor.append(svgElement("circle", {class: `dot ${name}`, cx: x(at[0]), cy: y(at[1]), r: 4}));
    }
  }

  /** Show the values at the cursor, or the last ones. */
  updateText() {
    const {low, high} = this.range();
    const step = Math.min(high, this.step ?? high);
    const values = Object.entries(this.lines).flatMap(([name, points]) => {
      const at = valueAt(points, step);
      return at ? [{name, value: formatValue(at[1])}] : [];
    });
    const several = Object.keys(this.lines).length > 1;
    this.latest.replaceChildren(...values.map(({name, value}) => make(
      "span", {className: `value ${name}`}, ...(several ? [make("span", {className: `key ${name}`}, name)] : []), make("b", {}, value),
    )));
    this.read.textContent = this.step === null ? this.options.description : `at step ${formatInteger(step)}`;
    this.slider.setAttribute("aria-valuemin", String(low));
    this.slider.setAttribute("aria-valuemax", String(high));
    this.slider.setAttribute("aria-valuenow", String(step));
    this.slider.setAttribute("aria-valuetext", `step ${formatInteger(step)}: ${values.map(({name, value}) => (several ? `${name} ` : "") + value).join(", ")}`);
  }
}

/** @param {number} x @param {number} y @param {string} anchor @param {string} text @returns {SVGTextElement} */
function label(x, y, anchor, text) {
  const made = svgElement("text", {class: "tick", x, y, "text-anchor": anchor});
  made.textContent = text;
  return made;
}

/** Return the index of the number nearest to a value in a sorted list. @param {number[]} sorted @param {number} value */
export function nearest(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) <= value) low = middle;
    else high = middle;
  }
  return Math.abs((sorted[low] ?? 0) - value) <= Math.abs((sorted[high] ?? 0) - value) ? low : high;
}

/** Return the last point at or before a step. @param {Point[]} points @param {number} step @returns {Point | null} */
export function valueAt(points, step) {
  let last = null;
  for (const point of points) {
    if (point[0] > step) break;
    last = point;
  }
  return last;
}
