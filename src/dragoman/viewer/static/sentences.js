// Source and output as text, with the attention of the hovered word.

import { make, roveFocus, pieceElement } from "./dom.js";
import { KIND_INFO, at, formatPercent, axisPoints, formatProbability, unitRange } from "./attention-data.js";

/**
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./attention-data.js").Point} Point
 * @typedef {import("./attention-data.js").Side} Side
 * @typedef {import("./attention-data.js").Unit} Unit
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 * @typedef {{ source: number[], target: number[], start: number }} Shares by unit; start: the weight on ⟨start⟩
 */

const MIN_SHARE = 0.03; // smaller shares are not shown

/**
 * Return the attention between the hovered units and each unit of both sides.
 * @param {AttentionData} data
 * @param {State} state
 * @returns {Shares}
 */
export function attentionShares(data, state) {
  const { kind, heads, units, point, partner, node } = state;
  const shares = { source: /** @type {number[]} */ ([]), target: /** @type {number[]} */ ([]), start: 0 };
  if (node !== null && data.record.beam) return { ...shares, source: data.nodeShares(node, units) };
  if (!point && !partner) return shares;
  const { row: rowSide, column: columnSide } = KIND_INFO[kind];
  const table = data.table(kind, heads, units);
  const width = table.columns.length;
  const { row, column } = axisPoints(kind, point, partner);
  const rows = unitRange(table.rows, row);
  const columns = unitRange(table.columns, rows ? null : column);
  const shift = kind === "decoder" ? 1 : 0; // decoder columns are the input, shifted by one
  if (rows) {
    const [first, end] = rows;
    table.columns.forEach((_, c) => {
      let sum = 0;
      for (let r = first; r < end; r++) sum += table.values[r * width + c] ?? 0;
      if (c >= shift) shares[columnSide][c - shift] = sum / (end - first);
      else shares.start = sum / (end - first);
    });
  } else if (columns) {
    const [first, end] = columns;
    table.rows.forEach((_, r) => {
      let sum = 0;
      for (let c = first; c < end; c++) sum += table.values[r * width + c] ?? 0;
      shares[rowSide][r] = sum;
    });
  }
  return shares;
}

/**
 * Show the source and the output.
 * @param {AttentionData} data
 * @param {Store} store
 * @param {{ changed?: Set<number> }} [marks] changed pieces of the output
 */
export function sentencesPanel(data, store, { changed = new Set() } = {}) {
  /** @type {Record<Side, HTMLElement>} */
  const lines = { source: line("source"), target: line("target") };
  lines.source.hidden = data.record.skin === "spectrogram"; // which shows the times of the source
  const summary = make("p", { className: "dv-summary" });
  summary.setAttribute("aria-live", "polite");
  const element = make("div", { className: "dv-sentences" }, lines.source, lines.target, summary);
  /** @type {Record<Side, HTMLElement[]>} */
  const words = { source: [], target: [] };

  /** @param {Side} side */
  function line(side) {
    const element = make("div", { className: `dv-sentence dv-${side}`, dir: "auto" });
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", side === "source" ? "Source" : "Output");
    return element;
  }

  /**
   * @param {Side} side
   * @param {Unit} unit
   */
  function makeWord(side, unit) {
    const text = unit.span && unit.span[1] > unit.span[0] ? data.record[side].text.slice(...unit.span) : null;
    const label = make(
      "span",
      { className: "dv-label" },
      ...(text === null ? [pieceElement(unit.label, "span")] : [text]),
    );
    const element = make("span", { className: "dv-word" }, label, make("span", { className: "dv-share" }));
    const isNew = side === "target" && [...changed].some((piece) => piece >= unit.first && piece < unit.end);
    element.classList.toggle("dv-special", unit.special);
    element.classList.toggle("dv-raw", text === null && !unit.special);
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
    const { text, spaced } = data.record[side];
    const units = data.record[side][store.state.units];
    words[side] = units.map((unit) => makeWord(side, unit));
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
    roveFocus(lines[side], words[side], words[side].length);
  }

  function mark() {
    const { state } = store;
    const shares = attentionShares(data, state);
    for (const side of /** @type {Side[]} */ (["source", "target"])) {
      const units = data.record[side][state.units];
      const chosen = unitRange(units, state.point?.side === side ? state.point : null);
      const other = unitRange(units, state.partner?.side === side ? state.partner : null);
      words[side].forEach((word, i) => {
        const share = shares[side][i] ?? 0;
        const notable = share >= MIN_SHARE;
        const here = Boolean(chosen && i >= chosen[0] && i < chosen[1]);
        const partnered = Boolean(other && i >= other[0] && i < other[1]);
        // Skip unchanged words: changing an element forces a layout.
        const now = `${notable ? share : 0} ${here} ${partnered} ${state.locked}`;
        if (word.dataset.now === now) return;
        word.dataset.now = now;
        word.classList.toggle("dv-chosen", here);
        word.classList.toggle("dv-partner", partnered);
        word.style.setProperty("--dv-weight", notable ? Math.sqrt(share).toFixed(3) : "0");
        word.setAttribute("aria-pressed", String(here && state.locked));
        /** @type {HTMLElement} */ (word.lastChild).textContent = notable ? formatPercent(share) : "";
      });
    }
    summary.replaceChildren(...summaryText(shares));
    element.classList.toggle("dv-locked", state.locked);
  }

  /**
   * Describe the attention of the hovered unit.
   * @param {Shares} shares
   * @returns {(Node | string)[]}
   */
  function summaryText(shares) {
    const { point, node, units, kind } = store.state;
    if (node !== null && data.record.beam) return description("", at(data.record.beam.nodes, node).piece, "attends to", shares);
    const range = point && unitRange(data.record[point.side][units], point);
    const attends = data.kinds().length > 0;
    const seen = attends ? "attention" : "probability";
    if (!point || !range) return [`Hover over a word to see its ${seen}; click to lock it.`];
    const label = at(data.record[point.side][units], range[0]).label;
    if (!attends) return [make("b", {}, pieceElement(label)), point.side === "target" ? `:${probabilityText(point)}` : ""];
    const isQuery = KIND_INFO[kind].row === point.side;
    const verb = isQuery ? "attends to" : "is attended to by";
    return description(point.side === "target" ? probabilityText(point) : "", label, verb, shares);
  }

  /**
   * @param {string} after
   * @param {string} label
   * @param {string} verb
   * @param {Shares} shares
   * @returns {(Node | string)[]}
   */
  function description(after, label, verb, shares) {
    const { units } = store.state;
    const partners = /** @type {Side[]} */ (["source", "target"]).flatMap((side) =>
      shares[side].map((share, i) => ({ share, label: data.record[side][units][i]?.label ?? "" })),
    );
    partners.push({ share: shares.start, label: data.record.prefix[0] ?? "" });
    const best = partners.filter(({ share }) => share >= MIN_SHARE).sort((one, two) => two.share - one.share);
    const list = best
      .slice(0, 4)
      .flatMap(({ share, label }, i) => [i ? ", " : " ", pieceElement(label), ` ${formatPercent(share)}`]);
    const unit = units === "words" ? "word" : "token";
    const nothing = best.length ? [] : [` no ${unit} with a weight of at least ${formatPercent(MIN_SHARE)}`];
    return [make("b", {}, pieceElement(label)), ` ${verb}`, ...list, ...nothing, ".", after];
  }

  /**
   * Describe the probability of the pieces of a point.
   * @param {Point} point
   */
  function probabilityText(point) {
    const steps = data.record.steps.slice(point.first, point.end);
    if (!steps.length) return "";
    const sum = steps.reduce((total, step) => total + step.log_probability, 0);
    const [first] = steps;
    const rival = first?.top_choices.find(([piece]) => piece !== data.record.target.pieces[point.first]?.label);
    const next = rival ? `; most likely alternative: “${rival[0].trim()}” ${formatProbability(rival[1])}` : "";
    const forced = point.first < data.record.forced_length ? " This token was forced." : "";
    return ` Probability ${formatProbability(sum)}${next}.${forced}`;
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
