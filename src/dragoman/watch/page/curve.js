// One curve: a drawing that is as wide as its place, a cursor that all curves share, and words for those who do not see it.

import {draw, make} from "./elements.js";
import {logTicks, short, tick, ticks, whole} from "./numbers.js";

/** @typedef {import("./summary.js").Lines} Lines @typedef {import("./summary.js").Point} Point */
/** @typedef {{title: string, about: string, log?: boolean, zero?: boolean}} Look */
/** @typedef {{left: number, right: number, top: number, bottom: number}} Frame */

const HEIGHT = 190;
/** @type {Frame} */
const MARGIN = {left: 46, right: 12, top: 10, bottom: 22};
const DOTS = 60; // more validations than this are drawn without dots

export class Curve {
  /**
   * @param {Look} look
   * @param {(step: number | null) => void} point called when the cursor moves; all curves follow
   */
  constructor(look, point) {
    this.look = look;
    this.point = point;
    /** @type {Lines} */
    this.lines = {};
    /** @type {[first: number, last: number]} */
    this.span = [0, 1];
    /** @type {number | null} */
    this.step = null;
    this.latest = make("span", "latest");
    this.read = make("p", "read");
    this.svg = draw("svg", {class: "plot", height: HEIGHT, role: "presentation"});
    this.slider = make("div", "slider", null, this.svg);
    this.slider.tabIndex = 0;
    this.slider.setAttribute("role", "slider");
    this.heading = make("h3");
    this.call(look.title);
    const head = make("div", "curve-head", null, this.heading, this.latest);
    this.element = make("article", "curve", null, head, this.slider, this.read);
    this.slider.addEventListener("pointermove", (event) => this.point(this.stepAt(event.offsetX)));
    this.slider.addEventListener("pointerdown", (event) => this.point(this.stepAt(event.offsetX)));
    this.slider.addEventListener("pointerleave", () => this.point(null));
    this.slider.addEventListener("keydown", (event) => this.key(event));
    this.slider.addEventListener("blur", () => this.point(null));
    new ResizeObserver(() => this.draw()).observe(this.slider);
  }

  /** Give the curve a name. @param {string} title */
  call(title) {
    this.heading.textContent = title;
    this.slider.setAttribute("aria-label", `${title}, ${this.look.about}; arrow keys walk the steps`);
  }

  /** Show other lines, over a span of steps that all curves share. @param {Lines} lines @param {[number, number]} span */
  show(lines, span) {
    this.lines = lines;
    this.span = span;
    this.element.hidden = this.steps.length === 0;
    this.draw();
    this.say();
  }

  /** Follow the cursor of all curves. @param {number | null} step */
  follow(step) {
    this.step = step;
    this.drawCursor();
    this.say();
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
    if (event.key === "Escape") this.point(null);
    if (!(event.key in moves) || !steps.length) return;
    event.preventDefault();
    const at = this.step === null ? steps.length - 1 : nearest(steps, this.step);
    this.point(steps[Math.min(steps.length - 1, Math.max(0, at + (moves[event.key] ?? 0)))] ?? null);
  }

  /** Return the step nearest to a place in the drawing. @param {number} x @returns {number | null} */
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

  /** @returns {{low: number, high: number, log: boolean}} the values to make room for */
  values() {
    const all = Object.values(this.lines).flatMap((points) => points.map(([, value]) => value));
    const log = Boolean(this.look.log) && Math.min(...all) > 0 && Math.max(...all) / Math.min(...all) > 20;
    let low = this.look.zero && !log ? 0 : Math.min(...all), high = Math.max(...all);
    if (high - low < 1e-12) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const room = log ? 0 : (high - low) * 0.05;
    return {low: this.look.zero && !log ? 0 : low - room, high: high + room, log};
  }

  /** Draw everything. */
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
    this.cursor = draw("g", {class: "cursor"});
    this.svg.append(this.cursor);
    this.drawCursor();
  }

  /**
   * Draw lines to read values by.
   * @param {number} width
   * @param {{low: number, high: number}} x
   * @param {{low: number, high: number, log: boolean}} y
   */
  drawAxes(width, x, y) {
    if (!this.x || !this.y) return;
    for (const value of y.log ? logTicks(y.low, y.high) : ticks(y.low, y.high, 4)) {
      const place = this.y(value);
      this.svg.append(draw("line", {class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: place, y2: place}));
      this.svg.append(label(MARGIN.left - 6, place + 4, "end", tick(value)));
    }
    const steps = ticks(x.low, x.high, Math.max(3, Math.floor(width / 80))).filter((step) => Number.isInteger(step));
    for (const step of steps) {
      this.svg.append(label(Math.min(this.x(step), width - 16), HEIGHT - 5, "middle", whole(step)));
    }
  }

  /** @param {string} name @param {Point[]} points */
  drawLine(name, points) {
    const {x, y} = this;
    if (!x || !y || !points.length) return;
    const path = points.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    this.svg.append(draw("path", {class: `line ${name}`, d: path}));
    if (points.length <= (name === "validation" ? DOTS : 1)) {
      this.svg.append(...points.map(([step, value]) => draw("circle", {class: `dot ${name}`, cx: x(step), cy: y(value), r: 3})));
    }
  }

  /** Draw the cursor, if it is anywhere. */
  drawCursor() {
    const {cursor, x, y} = this;
    if (!cursor || !x || !y) return;
    cursor.replaceChildren();
    if (this.step === null) return;
    cursor.append(draw("line", {x1: x(this.step), x2: x(this.step), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom}));
    for (const [name, points] of Object.entries(this.lines)) {
      const at = valueAt(points, this.step);
      if (at) cursor.append(draw("circle", {class: `dot ${name}`, cx: x(at[0]), cy: y(at[1]), r: 4}));
    }
  }

  /** Say what can be read at the cursor, or at the end. */
  say() {
    const {low, high} = this.range();
    const step = Math.min(high, this.step ?? high);
    const found = Object.entries(this.lines).flatMap(([name, points]) => {
      const at = valueAt(points, step);
      return at ? [{name, value: short(at[1])}] : [];
    });
    const several = Object.keys(this.lines).length > 1;
    this.latest.replaceChildren(...found.map(({name, value}) => make(
      "span", `value ${name}`, null, ...(several ? [make("span", `key ${name}`, name)] : []), make("b", "", value),
    )));
    this.read.textContent = this.step === null ? this.look.about : `at step ${whole(step)}`;
    this.slider.setAttribute("aria-valuemin", String(low));
    this.slider.setAttribute("aria-valuemax", String(high));
    this.slider.setAttribute("aria-valuenow", String(step));
    this.slider.setAttribute("aria-valuetext", `step ${whole(step)}: ${found.map(({name, value}) => (several ? `${name} ` : "") + value).join(", ")}`);
  }
}

/** @param {number} x @param {number} y @param {string} anchor @param {string} text @returns {SVGTextElement} */
function label(x, y, anchor, text) {
  const made = draw("text", {class: "tick", x, y, "text-anchor": anchor});
  made.textContent = text;
  return made;
}

/** Return the place of the number nearest to a value, in a sorted list. @param {number[]} sorted @param {number} value */
export function nearest(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) <= value) low = middle;
    else high = middle;
  }
  return Math.abs((sorted[low] ?? 0) - value) <= Math.abs((sorted[high] ?? 0) - value) ? low : high;
}

/** Return the last point that is not after a step. @param {Point[]} points @param {number} step @returns {Point | null} */
export function valueAt(points, step) {
  let found = null;
  for (const point of points) {
    if (point[0] > step) break;
    found = point;
  }
  return found;
}
