// The heads: all of them as thumbnails, and the chosen ones large, as a matrix, as lines or as a table.

import { css } from "./colours.js";
import { button, choice, make } from "./dom.js";
import { grid } from "./grid.js";
import { lines } from "./lines.js";
import { ABOUT, nameOf, sinks } from "./look.js";
import { matrix, matrixCsv, numbers, sinkNote } from "./matrix.js";
import { asSvg, onCanvas } from "./pen.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./look.js").HeadPlace} HeadPlace
 * @typedef {import("./look.js").HeadReport} HeadReport
 * @typedef {import("./look.js").Inside} Inside
 * @typedef {import("./look.js").Kind} Kind
 * @typedef {import("./look.js").Report} Report
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 * @typedef {import("./store.js").View} View
 */

/** @type {Record<string, string>} */
const BADGES = {
  positional: "positional: looks at a fixed distance",
  rare: "rare: looks at the rarest word",
  alignment: "alignment: looks at what it translates",
  sink: "sink: mostly rests on the start or the end",
  punctuation: "punctuation: rests on commas and full stops",
  copy: "copy: looks at the same piece",
  syntactic: "syntactic: follows the grammar",
};

/**
 * Show all heads.
 * @param {Inside} inside
 * @param {Store} store
 * @param {() => Theme} theme
 * @param {Report | null} report
 * @param {((kind: Kind, places: HeadPlace[]) => void) | null} toggle
 */
export function headsPanel(inside, store, theme, report, toggle) {
  if (!inside.kinds().length) return nothing();
  const known = new Map((report?.heads ?? []).map((head) => [`${head.kind} ${head.layer} ${head.head}`, head]));
  /** @type {(kind: Kind, layer: number, head: number) => HeadReport | undefined} */
  const reported = (kind, layer, head) => known.get(`${kind} ${layer} ${head}`);
  const grids = inside.kinds().map((kind) =>
    grid(inside, kind, store, theme, reported, toggle && ((places) => toggle(kind, places))),
  );
  const legend = make("div", { className: "dv-legend" });
  const grey = make("input", { type: "checkbox", checked: store.state.grey });
  grey.onchange = () => store.set({ grey: grey.checked });
  const hint = make(
    "span",
    { className: "dv-note dv-wide" },
    "Shift-click adds a head; a number takes the mean of its row or column.",
  );
  const bar = make(
    "div",
    { className: "dv-row dv-between" },
    legend,
    make("label", { className: "dv-check" }, grey, "Grey out start and end"),
    ...(inside.kinds().flatMap((kind) => inside.everyHead(kind)).length > 1 ? [hint] : []),
  );
  const title = make("h3", {});
  const sink = make("p", { className: "dv-note dv-sink" });
  const facts = make("div", { className: "dv-facts" });
  const views = choice(
    "Show as",
    /** @type {[View, string][]} */ ([
      ["matrix", "Matrix"],
      ["lines", "Lines"],
      ["table", "Table"],
    ]),
    store.state.view,
    (view) => store.set({ view }),
  );
  const off = button("", switched);
  const top = make(
    "div",
    { className: "dv-row dv-between" },
    make("div", {}, title, sink),
    make("div", { className: "dv-row" }, ...(toggle ? [off] : []), views.element),
  );
  const body = make("div", { className: "dv-body" });
  const large = make("section", { className: "dv-large" }, top, facts, body);
  large.setAttribute("aria-label", "Chosen heads");
  const element = make(
    "div",
    {},
    bar,
    make("div", { className: "dv-grids" }, ...grids.map((each) => each.element)),
    large,
  );
  /** @type {{ element: HTMLElement, draw: (changes: Set<keyof State>) => void, drawing?: () => import("./pen.js").Drawing, destroy?: () => void }} */
  let shown = open();

  function switched() {
    toggle?.(store.state.kind, store.state.heads);
  }

  function open() {
    const { view } = store.state;
    if (view !== "matrix") {
      const made = view === "lines" ? lines(inside, store, theme) : tabular();
      body.replaceChildren(made.element);
      return made;
    }
    // Where there is room, the lines stand beside the matrix.
    const [cells, beside] = [matrix(inside, store, theme), lines(inside, store, theme)];
    beside.element.classList.add("dv-beside");
    body.replaceChildren(make("div", { className: "dv-two" }, cells.element, beside.element));
    return { ...cells, draw: (/** @type {Set<keyof State>} */ changes) => (cells.draw(changes), beside.draw(changes)) };
  }

  function tabular() {
    const element = make("div", { className: "dv-scroll", tabIndex: 0 });
    const draw = () => element.replaceChildren(numbers(inside, store.state));
    draw();
    return { element, draw };
  }

  function scale() {
    const canvas = make("canvas");
    const [width, colours] = [200, theme()];
    const marks = [0, 0.1, 0.25, 0.5, 1];
    onCanvas(
      {
        width: width + 24,
        height: 28,
        draw(pen) {
          for (let x = 0; x < width; x++) pen.rect(8 + x, 0, 1.5, 10, { fill: css((x / width) ** 2, colours) });
          for (const mark of marks)
            pen.text(8 + width * Math.sqrt(mark), 20, String(mark), {
              size: 10.5,
              anchor: "middle",
              fill: colours.faint,
            });
        },
      },
      canvas,
    );
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "Scale of weights, from 0, pale, to 1, strong");
    legend.replaceChildren(canvas);
  }

  function describe() {
    const { kind, heads, units, grey } = store.state;
    const name = nameOf(inside, kind, heads);
    title.textContent = `${ABOUT[kind].name}, ${name}`;
    const note = sinkNote(sinks(inside.table(kind, heads, units)));
    sink.textContent = note ? `${note}${grey ? ", greyed." : "."}` : "";
    const isOff = heads.every(([layer, head]) =>
      inside.look.without.some((each) => each[0] === kind && each[1] === layer && each[2] === head),
    );
    off.textContent = isOff
      ? "Switch on"
      : heads.length === 1
        ? "Switch this head off"
        : `Switch these ${heads.length} heads off`;
    facts.replaceChildren(...(heads.length === 1 && heads[0] ? told(reported(kind, ...heads[0])) : []));
  }

  /** @param {HeadReport | undefined} head */
  function told(head) {
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
        : [`loss without it ${head.importance >= 0 ? "+" : "−"}${Math.abs(head.importance).toFixed(3)}`]),
      ...number("confidence", "confidence"),
      ...number("entropy", "entropy"),
      ...number("distance", "mean distance", 1),
      ...number("sink", "on start and end"),
    ];
    const where = report?.data ? ` on ${report.data.sentences} sentences` : "";
    const trend = trends(report?.history ?? [], head);
    return [
      ...trend,
      ...chips,
      make("span", { className: "dv-note" }, `${list.join(" · ")}${list.length ? `, measured${where}.` : ""}`),
    ];
  }

  /**
   * Return small curves of what a head was like at each checkpoint.
   * @param {import("./look.js").Past[]} history
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
      shown.destroy?.();
      shown = open();
      views.update(store.state.view);
    } else shown.draw(changes);
    const keys = /** @type {(keyof State)[]} */ (["kind", "heads", "units", "grey"]);
    if (keys.some((key) => changes.has(key))) describe();
  }

  scale();
  describe();
  return {
    element,
    draw,
    name: () => `${store.state.kind}-attention`,
    drawing: () => shown.drawing?.() ?? matrix(inside, store, theme).drawing(),
    csv: () => matrixCsv(inside, store.state),
    destroy: () => (grids.forEach((each) => each.destroy()), shown.destroy?.()),
  };
}

/** Say that there are no heads. */
function nothing() {
  const text = "This architecture has no attention: no position looks at another, so there are no weights to show.";
  return { element: make("p", { className: "dv-note" }, text), draw() {} };
}

/**
 * Return a small curve of values from 0 to 1.
 * @param {number[]} values
 * @param {Theme} theme
 */
function sparkline(values, theme) {
  const x = (/** @type {number} */ i) => 2 + (76 * i) / Math.max(1, values.length - 1);
  const y = (/** @type {number} */ value) => 21 - 19 * value;
  const svg = asSvg({
    width: 80,
    height: 24,
    draw(pen) {
      pen.curve([2, 22], [78, 22], { stroke: theme.line });
      values.slice(1).forEach((value, i) => {
        const before = values[i] ?? NaN;
        if (Number.isFinite(before + value))
          pen.curve([x(i), y(before)], [x(i + 1), y(value)], { stroke: theme.accent, width: 1.5 });
      });
    },
  });
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", values.map((value) => value.toFixed(2)).join(", "));
  return svg;
}

/** @param {number} offset */
const signed = (offset) => (offset > 0 ? `+${offset}` : offset < 0 ? `−${-offset}` : "0");
