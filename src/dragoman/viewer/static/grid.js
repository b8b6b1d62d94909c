// Thumbnails of every head of every layer of one kind; the hovered row or column is drawn on an overlay.

import { button, make, roveFocus } from "./dom.js";
import { KIND_INFO, at, headsLabel, axisPoints } from "./attention-data.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./attention-data.js").HeadPosition} HeadPosition
 * @typedef {import("./attention-data.js").HeadReport} HeadReport
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./attention-data.js").Kind} Kind
 * @typedef {import("./attention-data.js").Point} Point
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 */

/** One-letter versions of the badges. */
const LETTERS = new Map(
  Object.entries({
    positional: "P",
    rare: "R",
    alignment: "A",
    sink: "S",
    punctuation: "·",
    copy: "C",
    silence: "–",
    syntactic: "G",
  }),
);

/**
 * Show the thumbnails of one kind.
 * @param {AttentionData} data
 * @param {Kind} kind
 * @param {Store} store
 * @param {() => Theme} theme
 * @param {(kind: Kind, layer: number, head: number) => HeadReport | undefined} reported
 * @param {((positions: HeadPosition[]) => void) | null} [toggle] ablates heads or restores them
 */
export function headGrid(data, kind, store, theme, reported, toggle = null) {
  const { layers, heads, rows, columns } = data.record.kinds[kind];
  const special = data.units(kind, "column", "pieces").map((unit) => unit.special);
  const off = new Set(
    data.record.ablated_heads.filter(([other]) => other === kind).map(([, layer, head]) => `${layer} ${head}`),
  );
  const cells = make("div", { className: "dv-cells" });
  cells.style.gridTemplateColumns = `max-content repeat(${heads}, minmax(0, 1fr))`;
  // One canvas for all thumbnails: browsers are slow with many canvases.
  const sheet = make("canvas", { className: "dv-sheet" });
  const overlay = make("canvas", { className: "dv-overlay" });
  const most = Math.max(
    1e-9,
    ...data.allHeads(kind).map(([layer, head]) => reported(kind, layer, head)?.importance ?? 0),
  );
  const thumbs = data.allHeads(kind).map(thumb);
  const everything = button("all", () => choose(data.allHeads(kind)), "dv-name");
  everything.setAttribute("aria-label", `All heads, ${KIND_INFO[kind].name}`);
  const across = Array.from({ length: heads }, (_, head) =>
    name(`${head + 1}`, `Head ${head + 1} in all layers`, (position) => position[1] === head),
  );
  const down = Array.from({ length: layers }, (_, layer) =>
    name(`${layer + 1}`, `All heads of layer ${layer + 1}`, (position) => position[0] === layer),
  );
  cells.append(everything, ...across);
  down.forEach((label, layer) =>
    cells.append(label, ...thumbs.slice(layer * heads, (layer + 1) * heads).map((each) => each.element)),
  );
  const heading = make("h3", {}, KIND_INFO[kind].name, " ", make("span", { className: "dv-note" }, KIND_INFO[kind].description));
  const box = make("div", { className: "dv-gridbox" }, sheet, cells, overlay);
  if (heads < 4) box.style.maxWidth = `${2 + 8 * heads}rem`; // keep the thumbnails of few heads small
  const element = make("section", { className: "dv-grid" }, heading, box);
  element.setAttribute("aria-label", KIND_INFO[kind].name);
  roveFocus(
    cells,
    thumbs.map((each) => each.element),
    heads,
  );

  /** @param {HeadPosition} position */
  function thumb(position) {
    const [layer, head] = position;
    const room = make("span", { className: "dv-room" });
    const element = make("button", { type: "button", className: "dv-thumb" }, room);
    const report = reported(kind, layer, head);
    const isOff = off.has(`${layer} ${head}`);
    const badges = report?.badges ?? [];
    if (badges.length)
      element.append(
        make("span", { className: "dv-letters" }, badges.map((badge) => LETTERS.get(badge) ?? "•").join("")),
      );
    if (report?.importance !== undefined) {
      const bar = make("span", { className: "dv-importance" });
      bar.style.width = `${(100 * Math.max(0, report.importance)) / most}%`;
      element.append(bar);
    }
    const words = [`Layer ${layer + 1}, head ${head + 1}`, ...badges, ...(isOff ? ["ablated"] : [])];
    element.setAttribute("aria-label", `${KIND_INFO[kind].name}: ${words.join(", ")}`);
    element.title = words.join(", ");
    element.classList.toggle("dv-off", isOff);
    element.onclick = (event) => (event.shiftKey || event.ctrlKey || event.metaKey ? add(position) : choose([position]));
    element.addEventListener("keydown", (event) => {
      if (event.key === "+") add(position);
      if (event.key === "x") toggle?.([position]);
    });
    return { position, room, element };
  }

  /**
   * @param {string} text
   * @param {string} label
   * @param {(position: HeadPosition) => boolean} which
   */
  function name(text, label, which) {
    const element = button(text, () => choose(data.allHeads(kind).filter(which)), "dv-name");
    element.setAttribute("aria-label", `${label}, ${KIND_INFO[kind].name}`);
    element.title = `${label}: mean`;
    return element;
  }

  /** @param {HeadPosition[]} heads */
  const choose = (heads) => store.set({ kind, heads });

  /** @param {HeadPosition} position */
  function add(position) {
    if (store.state.kind !== kind) return choose([position]);
    const others = store.state.heads.filter(([layer, head]) => layer !== position[0] || head !== position[1]);
    const had = others.length < store.state.heads.length;
    choose(had && others.length ? others : [...others, position].sort((one, two) => one[0] - two[0] || one[1] - two[1]));
  }

  function paint() {
    const { colour, grey } = theme();
    const bytes = data.bytes(kind);
    const size = rows.length * columns.length;
    const scale = sheet.width / Math.max(1, box.clientWidth);
    const small = make("canvas", { width: columns.length, height: rows.length });
    const [context, one] = [sheet.getContext("2d"), small.getContext("2d")];
    if (!context || !one) return;
    context.clearRect(0, 0, sheet.width, sheet.height);
    context.imageSmoothingEnabled = false;
    boxes.forEach(({ left, top, width, height }, number) => {
      const image = new ImageData(columns.length, rows.length);
      const out = new Uint32Array(image.data.buffer);
      for (let i = 0; i < size; i++) {
        const shades = store.state.grey && special[i % columns.length] ? grey : colour;
        out[i] = at(shades, bytes[number * size + i] ?? 0);
      }
      one.putImageData(image, 0, 0);
      context.globalAlpha = off.has(at(thumbs, number).position.join(" ")) ? 0.3 : 1;
      context.drawImage(small, left * scale, top * scale, width * scale, height * scale);
    });
  }

  function mark() {
    const { state } = store;
    const chosen = new Set(state.kind === kind ? state.heads.map(String) : []);
    for (const { position, element } of thumbs) {
      const here = chosen.has(String(position));
      element.classList.toggle("dv-chosen", here && chosen.size < thumbs.length);
      element.setAttribute("aria-pressed", String(here));
    }
    everything.setAttribute("aria-pressed", String(chosen.size === thumbs.length));
    element.title = chosen.size > 1 && state.kind === kind ? headsLabel(data, kind, state.heads) : "";
  }

  /** Draw the hovered row and column over all thumbnails. */
  function highlight() {
    const { row, column } = axisPoints(kind, store.state.point, store.state.partner);
    const context = overlay.getContext("2d");
    if (!context) return;
    context.clearRect(0, 0, overlay.width, overlay.height);
    if (!row && !column) return;
    const scale = overlay.width / Math.max(1, box.clientWidth);
    context.strokeStyle = theme().accent;
    context.lineWidth = Math.max(1, scale);
    for (const { left, top, width, height } of boxes) {
      const [dx, dy] = [width / columns.length, height / rows.length];
      if (row) frame(context, left, top + row.first * dy, width, (row.end - row.first) * dy, scale);
      if (column) frame(context, left + column.first * dx, top, (column.end - column.first) * dx, height, scale);
    }
  }

  /** @type {{ left: number, top: number, width: number, height: number }[]} */
  let boxes = [];

  /** Measure the positions of the thumbnails; called when the size of the page changes. */
  function measure() {
    const outer = box.getBoundingClientRect();
    const scale = Math.min(2, devicePixelRatio);
    sheet.width = overlay.width = Math.round(outer.width * scale);
    sheet.height = overlay.height = Math.round(outer.height * scale);
    boxes = thumbs.map(({ room }) => {
      const { left, top, width, height } = room.getBoundingClientRect();
      return { left: left - outer.left, top: top - outer.top, width, height };
    });
    paint();
    highlight();
  }

  /** @param {Set<keyof State>} changes */
  function draw(changes) {
    if (changes.has("theme") || changes.has("grey")) paint();
    if (changes.has("kind") || changes.has("heads")) mark();
    if (changes.has("point") || changes.has("partner") || changes.has("theme")) highlight();
  }

  const observer = new ResizeObserver(measure);
  observer.observe(box);
  mark();
  return { element, draw, destroy: () => observer.disconnect() };
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {number} scale
 */
function frame(context, x, y, width, height, scale) {
  context.strokeRect(Math.round(x * scale) + 0.5, Math.round(y * scale) + 0.5, width * scale - 1, height * scale - 1);
}
