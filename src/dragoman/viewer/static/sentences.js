// The translation as text: both sentences, and what belongs to the word that is pointed at.

import { make, rove, written } from "./dom.js";
import { ABOUT, at, percent, pointed, probability, touched } from "./look.js";

/**
 * @typedef {import("./look.js").Inside} Inside
 * @typedef {import("./look.js").Point} Point
 * @typedef {import("./look.js").Side} Side
 * @typedef {import("./look.js").Unit} Unit
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 * @typedef {{ source: number[], target: number[], start: number }} Shares by unit; start: what no sentence shows
 */

const NOTABLE = 0.03; // smaller shares are not shown

/**
 * Return how much of the attention belongs to each unit of each side, for what is pointed at.
 * @param {Inside} inside
 * @param {State} state
 * @returns {Shares}
 */
export function shares(inside, state) {
  const { kind, heads, units, point, partner, node } = state;
  const found = { source: /** @type {number[]} */ ([]), target: /** @type {number[]} */ ([]), start: 0 };
  if (node !== null && inside.look.beam) return { ...found, source: inside.nodeShares(node, units) };
  if (!point && !partner) return found;
  const { row: rowSide, column: columnSide } = ABOUT[kind];
  const table = inside.table(kind, heads, units);
  const width = table.columns.length;
  const { row, column } = pointed(kind, point, partner);
  const rows = touched(table.rows, row);
  const columns = touched(table.columns, rows ? null : column);
  const shift = kind === "decoder" ? 1 : 0; // a column stands for what was written one step before
  if (rows) {
    const [first, end] = rows;
    table.columns.forEach((_, c) => {
      let sum = 0;
      for (let r = first; r < end; r++) sum += table.values[r * width + c] ?? 0;
      if (c >= shift) found[columnSide][c - shift] = sum / (end - first);
      else found.start = sum / (end - first);
    });
  } else if (columns) {
    const [first, end] = columns;
    table.rows.forEach((_, r) => {
      let sum = 0;
      for (let c = first; c < end; c++) sum += table.values[r * width + c] ?? 0;
      found[rowSide][r] = sum;
    });
  }
  return found;
}

/**
 * Show both sentences.
 * @param {Inside} inside
 * @param {Store} store
 * @param {{ changed?: Set<number> }} [marks] words of the target that are new
 */
export function sentences(inside, store, { changed = new Set() } = {}) {
  /** @type {Record<Side, HTMLElement>} */
  const lines = { source: line("source"), target: line("target") };
  const said = make("p", { className: "dv-said" });
  said.setAttribute("aria-live", "polite");
  const element = make("div", { className: "dv-sentences" }, lines.source, lines.target, said);
  /** @type {Record<Side, HTMLElement[]>} */
  const words = { source: [], target: [] };

  /** @param {Side} side */
  function line(side) {
    const element = make("div", { className: `dv-sentence dv-${side}`, dir: "auto" });
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", side === "source" ? "Source" : "Translation");
    return element;
  }

  /**
   * @param {Side} side
   * @param {Unit} unit
   */
  function wordOf(side, unit) {
    const shown = unit.span && unit.span[1] > unit.span[0] ? inside.look[side].text.slice(...unit.span) : null;
    const label = make(
      "span",
      { className: "dv-label" },
      ...(shown === null ? [written(unit.label, "span")] : [shown]),
    );
    const element = make("span", { className: "dv-word" }, label, make("span", { className: "dv-share" }));
    const isNew = side === "target" && [...changed].some((piece) => piece >= unit.first && piece < unit.end);
    element.classList.toggle("dv-special", unit.special);
    element.classList.toggle("dv-raw", shown === null && !unit.special);
    element.classList.toggle("dv-new", isNew);
    element.setAttribute("role", "button");
    element.setAttribute("aria-pressed", "false");
    if (isNew) element.setAttribute("aria-description", "changed");
    const point = { side, first: unit.first, end: unit.end };
    element.onpointerenter = element.onfocus = () => store.point(point);
    element.onpointerleave = element.onblur = () => store.point(null);
    element.onclick = () => store.lock(point);
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      store.lock(point);
    });
    return element;
  }

  /** @param {Side} side */
  function write(side) {
    const { text, spaced } = inside.look[side];
    const units = inside.look[side][store.state.units];
    words[side] = units.map((unit) => wordOf(side, unit));
    /** @type {(Node | string)[]} */
    const flow = [];
    let done = 0;
    units.forEach((unit, i) => {
      const [start, stop] = unit.span ?? [done, done];
      if (i) flow.push(unit.special || (!unit.span && spaced) ? " " : text.slice(done, start));
      done = Math.max(done, stop);
      flow.push(at(words[side], i));
    });
    lines[side].replaceChildren(...flow);
    lines[side].classList.toggle("dv-pieces", store.state.units === "pieces");
    lines[side].classList.toggle("dv-long", text.length > 160);
    rove(lines[side], words[side], words[side].length);
  }

  function mark() {
    const { state } = store;
    const found = shares(inside, state);
    for (const side of /** @type {Side[]} */ (["source", "target"])) {
      const units = inside.look[side][state.units];
      const chosen = touched(units, state.point?.side === side ? state.point : null);
      const other = touched(units, state.partner?.side === side ? state.partner : null);
      words[side].forEach((word, i) => {
        const share = found[side][i] ?? 0;
        const notable = share >= NOTABLE;
        const here = Boolean(chosen && i >= chosen[0] && i < chosen[1]);
        const partnered = Boolean(other && i >= other[0] && i < other[1]);
        // Most words stay as they are; to touch them all would cost a layout each time.
        const now = `${notable ? share : 0} ${here} ${partnered} ${state.locked}`;
        if (word.dataset.now === now) return;
        word.dataset.now = now;
        word.classList.toggle("dv-chosen", here);
        word.classList.toggle("dv-partner", partnered);
        word.style.setProperty("--dv-weight", notable ? Math.sqrt(share).toFixed(3) : "0");
        word.setAttribute("aria-pressed", String(here && state.locked));
        /** @type {HTMLElement} */ (word.lastChild).textContent = notable ? percent(share) : "";
      });
    }
    said.replaceChildren(...sentence(found));
    element.classList.toggle("dv-locked", state.locked);
  }

  /**
   * Say in words what is pointed at.
   * @param {Shares} found
   * @returns {(Node | string)[]}
   */
  function sentence(found) {
    const { point, node, units, kind } = store.state;
    if (node !== null && inside.look.beam) return told("", at(inside.look.beam.nodes, node).piece, "looked at", found);
    const place = point && touched(inside.look[point.side][units], point);
    const attends = inside.kinds().length > 0;
    const seen = attends ? "where the model looked" : "how sure the model was of it";
    if (!point || !place) return [`Point at a word to see ${seen}; click to hold it.`];
    const label = at(inside.look[point.side][units], place[0]).label;
    if (!attends) return [make("b", {}, written(label)), point.side === "target" ? `:${sureness(point)}` : ""];
    const looks = ABOUT[kind].row === point.side;
    const way = !looks ? "was looked at by" : kind === "encoder" ? "looks at" : "was written looking at";
    return told(point.side === "target" ? sureness(point) : "", label, way, found);
  }

  /**
   * @param {string} after
   * @param {string} label
   * @param {string} way
   * @param {Shares} found
   * @returns {(Node | string)[]}
   */
  function told(after, label, way, found) {
    const { units } = store.state;
    const partners = /** @type {Side[]} */ (["source", "target"]).flatMap((side) =>
      found[side].map((share, i) => ({ share, label: inside.look[side][units][i]?.label ?? "" })),
    );
    partners.push({ share: found.start, label: inside.look.prefix[0] ?? "" });
    const best = partners.filter(({ share }) => share >= NOTABLE).sort((one, two) => two.share - one.share);
    const list = best
      .slice(0, 4)
      .flatMap(({ share, label }, i) => [i ? ", " : " ", written(label), ` ${percent(share)}`]);
    const nothing = best.length ? [] : [" nothing in particular"];
    return [make("b", {}, written(label)), ` ${way}`, ...list, ...nothing, ".", after];
  }

  /**
   * Say how sure the model was of the pieces of a point.
   * @param {Point} point
   */
  function sureness(point) {
    const steps = inside.look.steps.slice(point.first, point.end);
    if (!steps.length) return "";
    const sum = steps.reduce((total, step) => total + step.log_probability, 0);
    const [first] = steps;
    const rival = first?.best.find(([piece]) => piece !== inside.look.target.pieces[point.first]?.label);
    const next = rival ? `; next best “${rival[0].trim()}” ${probability(rival[1])}` : "";
    const forced = point.first < inside.look.given ? " It was given." : "";
    return ` Probability ${probability(sum)}${next}.${forced}`;
  }

  /** @param {Set<keyof State>} changes */
  function draw(changes) {
    if (changes.has("units")) (write("source"), write("target"));
    const keys = /** @type {(keyof State)[]} */ (["units", "point", "partner", "node", "locked", "kind", "heads"]);
    if (keys.some((key) => changes.has(key))) mark();
  }

  draw(new Set(/** @type {(keyof State)[]} */ (["units"])));
  return { element, draw };
}
