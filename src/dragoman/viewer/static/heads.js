// All heads as thumbnails, and the selected ones enlarged as a matrix, as lines or as a table.

import { cssColour } from "./colours.js";
import { button, radioGroup, make } from "./dom.js";
import { headGrid } from "./grid.js";
import { linesPanel } from "./lines.js";
import { KIND_INFO, headsLabel, sinks } from "./attention-data.js";
import { matrixCsv, matrixPanel, matrixTable, sinkNote } from "./matrix.js";
import { toSvg, drawOnCanvas } from "./drawing-context.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./attention-data.js").HeadPosition} HeadPosition
 * @typedef {import("./attention-data.js").HeadReport} HeadReport
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./attention-data.js").Kind} Kind
 * @typedef {import("./attention-data.js").Report} Report
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 * @typedef {import("./store.js").View} View
 */

/** @type {Record<string, string>} */
const BADGES = {
  positional: "positional: attends to a fixed offset",
  rare: "rare: attends to the rarest word",
  alignment: "alignment: attends to the source word being translated",
  sink: "sink: most weight is on ⟨start⟩ or ⟨end⟩",
  punctuation: "punctuation: most weight is on punctuation",
  copy: "copy: attends to an identical token",
  silence: "silence: much of the weight is on silence",
  syntactic: "syntactic: follows a grammatical relation",
};

/**
 * Show all heads.
 * @param {AttentionData} data
 * @param {Store} store
 * @param {() => Theme} theme
 * @param {Report | null} report
 * @param {((kind: Kind, positions: HeadPosition[]) => void) | null} toggle
 */
export function headsPanel(data, store, theme, report, toggle) {
  if (!data.kinds().length) return noAttention();
  const known = new Map((report?.heads ?? []).map((head) => [`${head.kind} ${head.layer} ${head.head}`, head]));
  /** @type {(kind: Kind, layer: number, head: number) => HeadReport | undefined} */
  const reported = (kind, layer, head) => known.get(`${kind} ${layer} ${head}`);
  const grids = data.kinds().map((kind) =>
    headGrid(data, kind, store, theme, reported, toggle && ((positions) => toggle(kind, positions))),
  );
  const legend = make("div", { className: "dv-legend" });
  const grey = make("input", { type: "checkbox", checked: store.state.grey });
  grey.onchange = () => store.set({ grey: grey.checked });
  const hint = make(
    "span",
    { className: "dv-note dv-wide" },
    "Shift-click to add a head; click a number to select the mean of its row or column.",
  );
  const bar = make(
    "div",
    { className: "dv-row dv-between" },
    legend,
    make("label", { className: "dv-check" }, grey, "Grey out ⟨start⟩ and ⟨end⟩"),
    ...(data.kinds().flatMap((kind) => data.allHeads(kind)).length > 1 ? [hint] : []),
  );
  const title = make("h3", {});
  const sink = make("p", { className: "dv-note dv-sink" });
  const facts = make("div", { className: "dv-facts" });
  const views = radioGroup(
    "Show as",
    /** @type {[View, string][]} */ ([
      ["matrix", "Matrix"],
      ["lines", "Lines"],
      ["table", "Table"],
    ]),
    store.state.view,
    (view) => store.set({ view }),
  );
  const off = button("", toggleSelected);
  const top = make(
    "div",
    { className: "dv-row dv-between" },
    make("div", {}, title, sink),
    make("div", { className: "dv-row" }, ...(toggle ? [off] : []), views.element),
  );
  const body = make("div", { className: "dv-body" });
  const large = make("section", { className: "dv-large" }, top, facts, body);
  large.setAttribute("aria-label", "Selected heads");
  const element = make(
    "div",
    {},
    bar,
    make("div", { className: "dv-grids" }, ...grids.map((each) => each.element)),
    large,
  );
  /** @type {{ element: HTMLElement, draw: (changes: Set<keyof State>) => void, drawing?: () => import("./drawing-context.js").Drawing, destroy?: () => void }} */
  let view = openView();

  function toggleSelected() {
    toggle?.(store.state.kind, store.state.heads);
  }

  function openView() {
    const { view: name } = store.state;
    if (name !== "matrix") {
      const made = name === "lines" ? linesPanel(data, store, theme) : tabular();
      body.replaceChildren(made.element);
      return made;
    }
    // Show the lines next to the matrix if there is space.
    const [cells, beside] = [matrixPanel(data, store, theme), linesPanel(data, store, theme)];
    beside.element.classList.add("dv-beside");
    body.replaceChildren(make("div", { className: "dv-two" }, cells.element, beside.element));
    return { ...cells, draw: (/** @type {Set<keyof State>} */ changes) => (cells.draw(changes), beside.draw(changes)) };
  }

  function tabular() {
    const element = make("div", { className: "dv-scroll", tabIndex: 0 });
    const draw = () => element.replaceChildren(matrixTable(data, store.state));
    draw();
    return { element, draw };
  }

  function scale() {
    const canvas = make("canvas");
    const [width, colours] = [200, theme()];
    const marks = [0, 0.1, 0.25, 0.5, 1];
    drawOnCanvas(
      {
        width: width + 24,
        height: 28,
        draw(context) {
          for (let x = 0; x < width; x++) context.rect(8 + x, 0, 1.5, 10, { fill: cssColour((x / width) ** 2, colours) });
          for (const mark of marks)
            context.text(8 + width * Math.sqrt(mark), 20, String(mark), {
              size: 10.5,
              anchor: "middle",
              fill: colours.faint,
            });
        },
      },
      canvas,
    );
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "Colour scale of weights, from 0 (pale) to 1 (dark)");
    legend.replaceChildren(canvas);
  }

  function describe() {
    const { kind, heads, units, grey } = store.state;
    const name = headsLabel(data, kind, heads);
    title.textContent = `${KIND_INFO[kind].name}, ${name}`;
    const note = sinkNote(sinks(data.table(kind, heads, units)));
    sink.textContent = note ? `${note}${grey ? ", shown in grey." : "."}` : "";
    const isOff = heads.every(([layer, head]) =>
      data.record.ablated_heads.some((each) => each[0] === kind && each[1] === layer && each[2] === head),
    );
    off.textContent = isOff
      ? "Restore"
      : heads.length === 1
        ? "Ablate this head"
        : `Ablate these ${heads.length} heads`;
    facts.replaceChildren(...(heads.length === 1 && heads[0] ? headFacts(reported(kind, ...heads[0])) : []));
  }

  /** @param {HeadReport | undefined} head */
  function headFacts(head) {
    if (!head) return [];
    const chips = head.badges.map((badge) =>
      make(
        "span",
        { className: "dv-badge", title: BADGES[badge] ?? badge },
        badge === "positional" && typeof head.offset === "number" ? `positional ${signed(head.offset)}` : badge,
      ),
    );
    const number = (/** @type {string} */ key, /** @type {string} */ name, digits = 2) => {
      const value = head[key];
      return typeof value === "number" ? [`${name} ${value.toFixed(digits)}`] : [];
    };
    const list = [
      ...(head.importance === undefined
        ? []
        : [`loss change when ablated ${head.importance >= 0 ? "+" : "−"}${Math.abs(head.importance).toFixed(3)}`]),
      ...number("confidence", "confidence"),
      ...number("entropy", "entropy"),
      ...number("distance", "mean distance", 1),
      ...number("width", "width in positions", 1),
      ...number("monotonic", "steps that do not go back"),
      ...number("silence", "weight on silence"),
      ...number("sink", "weight on ⟨start⟩ and ⟨end⟩"),
    ];
    const where = report?.data ? `, measured on ${report.data.sentences} ${report.data.unit ?? "sentence"}s` : "";
    const trend = trends(report?.history ?? [], head);
    return [
      ...trend,
      ...chips,
      make("span", { className: "dv-note" }, `${list.join(" · ")}${list.length ? `${where}.` : ""}`),
    ];
  }

  /**
   * Return sparklines of a head's statistics over the checkpoints.
   * @param {import("./attention-data.js").PastReport[]} history
   * @param {HeadReport} head
   */
  function trends(history, head) {
    const past = history.map((each) =>
      each.heads.find((other) => other.kind === head.kind && other.layer === head.layer && other.head === head.head),
    );
    const names = ["confidence", "positional", head.kind === "cross" ? "alignment" : "sink"];
    if (past.length < 2) return [];
    return names.map((name) => {
      const values = past.map((each) => Number(each?.[name] ?? NaN));
      const figure = make(
        "figure",
        { className: "dv-trend" },
        sparkline(values, theme()),
        make("figcaption", { className: "dv-note" }, name),
      );
      figure.title = `${name} from step ${history[0]?.step} to ${history.at(-1)?.step}: ${values.map((value) => value.toFixed(2)).join(", ")}`;
      return figure;
    });
  }

  /** @param {Set<keyof State>} changes */
  function draw(changes) {
    grids.forEach((each) => each.draw(changes));
    if (changes.has("theme")) scale();
    if (changes.has("grey")) grey.checked = store.state.grey;
    if (changes.has("view")) {
      view.destroy?.();
      view = openView();
      views.update(store.state.view);
    } else view.draw(changes);
    const keys = /** @type {(keyof State)[]} */ (["kind", "heads", "units", "grey"]);
    if (keys.some((key) => changes.has(key))) describe();
  }

  scale();
  describe();
  return {
    element,
    draw,
    name: () => `${store.state.kind}-attention`,
    drawing: () => view.drawing?.() ?? matrixPanel(data, store, theme).drawing(),
    csv: () => matrixCsv(data, store.state),
    destroy: () => (grids.forEach((each) => each.destroy()), view.destroy?.()),
  };
}

/** Return a note for architectures without attention. */
function noAttention() {
  const text = "This architecture has no attention weights.";
  return { element: make("p", { className: "dv-note" }, text), draw() {} };
}

/**
 * Return a sparkline of values from 0 to 1.
 * @param {number[]} values
 * @param {Theme} theme
 */
function sparkline(values, theme) {
  const x = (/** @type {number} */ i) => 2 + (76 * i) / Math.max(1, values.length - 1);
  const y = (/** @type {number} */ value) => 21 - 19 * value;
  const svg = toSvg({
    width: 80,
    height: 24,
    draw(context) {
      context.curve([2, 22], [78, 22], { stroke: theme.line });
      values.slice(1).forEach((value, i) => {
        const before = values[i] ?? NaN;
        if (Number.isFinite(before + value))
          context.curve([x(i), y(before)], [x(i + 1), y(value)], { stroke: theme.accent, width: 1.5 });
      });
    },
  });
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", values.map((value) => value.toFixed(2)).join(", "));
  return svg;
}

/** @param {number} offset */
const signed = (offset) => (offset > 0 ? `+${offset}` : offset < 0 ? `−${-offset}` : "0");
