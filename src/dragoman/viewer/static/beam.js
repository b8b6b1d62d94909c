// The beam as a tree: every hypothesis that was ever in it, what became of it, and a way to go on from any of them.

import { button, make, plain, tableOf } from "./dom.js";
import { at, percent, probability } from "./look.js";
import { csv } from "./matrix.js";
import { asSvg, short, widthOf } from "./pen.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./look.js").Beam} Beam
 * @typedef {import("./look.js").BeamNode} BeamNode
 * @typedef {import("./look.js").Inside} Inside
 * @typedef {import("./pen.js").Drawing} Drawing
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 * @typedef {{ x: number, y: number, width: number }} Place
 */

const LEAF = 38; // pixels from leaf to leaf
const PIECE = 13;

const MEANING = {
  chosen: "part of the translation",
  finished: "ended, but another won",
  live: "still in the beam at the end, or led to one that ended",
  pruned: "dropped: others were better",
};

/**
 * Return what is written on a node; where pieces say that they begin a word, a dot says that one does not.
 * @param {BeamNode} node
 * @param {boolean} marked
 */
function nodeLabel(node, marked) {
  const inner = marked && /^[\p{L}\p{N}]/u.test(node.piece);
  return short(`${inner ? "·" : ""}${node.piece.trim() || "␣"}`, 16);
}

/** @param {BeamNode[]} nodes */
const isMarked = (nodes) => nodes.some((node) => node.piece.startsWith(" "));

/**
 * Lay the tree out: a column a step, a row a leaf, the best child level with its parent.
 * @param {BeamNode[]} nodes
 */
function layout(nodes) {
  const marked = isMarked(nodes);
  /** @type {Map<number | null, BeamNode[]>} */
  const children = new Map();
  for (const node of nodes) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const rank = { chosen: 0, finished: 1, live: 2, pruned: 3 };
  const order = (/** @type {BeamNode} */ one, /** @type {BeamNode} */ two) =>
    rank[one.state] - rank[two.state] || two.sum - one.sum;
  const columns = /** @type {number[]} */ ([]);
  for (const node of nodes)
    columns[node.step] = Math.max(columns[node.step] ?? 44, widthOf(nodeLabel(node, marked), PIECE) + 30);
  const left = [24];
  columns.forEach((width, step) => (left[step + 1] = (left[step] ?? 0) + width));
  /** @type {Map<number, Place>} */
  const places = new Map();
  let row = 0;
  /** @param {BeamNode} node */
  const visit = (node) => {
    const y = row;
    const own = (children.get(node.id) ?? []).sort(order);
    places.set(node.id, {
      x: left[node.step] ?? 0,
      y: y * LEAF + 34,
      width: widthOf(nodeLabel(node, marked), PIECE) + 12,
    });
    own.forEach((child, i) => {
      if (i) row++;
      visit(child);
    });
  };
  (children.get(null) ?? []).sort(order).forEach((node, i) => {
    if (i) row++;
    visit(node);
  });
  return { places, width: (left.at(-1) ?? 0) + 20, height: (row + 1) * LEAF + 24 };
}

/**
 * Return the drawing of a tree.
 * @param {Beam} beam
 * @param {Theme} theme
 * @param {(nodes: Map<number, Element[]>) => void} [drawn]
 * @returns {Drawing}
 */
export function beamDrawing({ nodes }, theme, drawn) {
  const { places, width, height } = layout(nodes);
  const marked = isMarked(nodes);
  return {
    width,
    height,
    draw(pen) {
      /** @type {Map<number, Element[]>} */
      const parts = new Map();
      const place = (/** @type {number} */ id) => /** @type {Place} */ (places.get(id));
      for (const node of nodes) {
        const { x, y } = place(node.id);
        const parent = node.parent === null ? null : place(node.parent);
        const chosen = node.state === "chosen";
        const ink = {
          stroke: chosen ? theme.accent : theme.faint,
          width: chosen ? 2.5 : 1,
          opacity: chosen ? 1 : 0.55,
          dashed: node.state === "pruned",
        };
        pen.curve(parent ? [parent.x + parent.width, parent.y] : [6, 34], [x, y], ink);
      }
      pen.rect(2, 30, 8, 8, { fill: theme.faint, radius: 4 });
      for (const node of nodes) {
        const { x, y, width: wide } = place(node.id);
        const chosen = node.state === "chosen";
        const opacity = node.state === "pruned" ? 0.75 : 1;
        const box = pen.rect(x, y - 12, wide, 24, {
          fill: chosen ? theme.accent : theme.card,
          stroke: chosen ? theme.accent : theme.line,
          radius: 7,
        });
        const text = pen.text(x + wide / 2, y, nodeLabel(node, marked), {
          size: PIECE,
          anchor: "middle",
          fill: chosen ? theme.paper : theme.ink,
          opacity,
          bold: chosen,
        });
        const number = pen.text(
          x + wide / 2,
          y + 18,
          `${probability(node.log_probability)}${node.state === "finished" ? " ■" : ""}`,
          { size: 9.5, anchor: "middle", fill: theme.faint },
        );
        parts.set(node.id, /** @type {Element[]} */ ([box, text, number].filter(Boolean)));
      }
      drawn?.(parts);
    },
  };
}

/**
 * Show the tree.
 * @param {Inside} inside
 * @param {Beam} beam
 * @param {Store} store
 * @param {() => Theme} theme
 * @param {((prefix: string) => void) | null} go continues from a prefix, where there is a server to ask
 */
export function beamTree(inside, beam, store, theme, go) {
  const picture = make("div", { className: "dv-scroll" });
  const card = make("div", { className: "dv-card" });
  const wide = beam.nodes.filter(
    (node) => node.state === "finished" || (node.state === "chosen" && node.piece === last()),
  ).length;
  const note = make(
    "p",
    { className: "dv-note" },
    `Beam of ${beam.width}: ${beam.nodes.length} pieces were tried, ${wide} hypotheses ended (■ those that lost). The number under a piece is its probability.`,
  );
  const element = make("div", {}, note, picture, card);
  card.setAttribute("aria-live", "polite");
  /** @type {Map<number, Element[]>} */
  let parts = new Map();

  function last() {
    return inside.look.target.pieces.at(-1)?.label;
  }

  function paint() {
    const svg = asSvg(beamDrawing(beam, theme(), (found) => (parts = found)));
    svg.setAttribute("class", "dv-beam");
    svg.setAttribute("role", "tree");
    svg.setAttribute("aria-label", "What the search tried; arrow keys walk the tree");
    picture.replaceChildren(svg);
    for (const node of beam.nodes) {
      const [box, label] = parts.get(node.id) ?? [];
      if (!(box instanceof SVGElement) || !(label instanceof SVGElement)) continue;
      box.setAttribute("role", "treeitem");
      box.setAttribute(
        "aria-label",
        `${plain(node.piece)}, probability ${probability(node.log_probability)}, ${MEANING[node.state]}`,
      );
      box.setAttribute("tabindex", node.id ? "-1" : "0");
      for (const part of [box, label]) {
        part.onpointerenter = () => store.point(...found(node));
        part.onpointerleave = () => store.point(null);
        part.onclick = () => store.lock(...found(node));
      }
      box.onfocus = () => store.point(...found(node));
      box.onkeydown = (event) => walk(event, node);
    }
    mark();
  }

  /**
   * Return what a node stands for: if it is in the translation, a piece of it.
   * @param {BeamNode} node
   * @returns {[import("./look.js").Point | null, { node: number }]}
   */
  const found = (node) => [
    node.state === "chosen" ? { side: "target", first: node.step, end: node.step + 1 } : null,
    { node: node.id },
  ];

  /**
   * @param {KeyboardEvent} event
   * @param {BeamNode} node
   */
  function walk(event, node) {
    const siblings = beam.nodes.filter((other) => other.step === node.step);
    const here = siblings.indexOf(node);
    const next =
      event.key === "ArrowRight"
        ? beam.nodes.find((other) => other.parent === node.id)
        : event.key === "ArrowLeft"
          ? beam.nodes.find((other) => other.id === node.parent)
          : event.key === "ArrowDown"
            ? siblings[here + 1]
            : event.key === "ArrowUp"
              ? siblings[here - 1]
              : undefined;
    if (event.key === "Enter") store.lock(...found(node));
    if (!next) return;
    event.preventDefault();
    const [box] = parts.get(next.id) ?? [];
    if (!(box instanceof SVGElement)) return;
    parts.get(node.id)?.[0]?.setAttribute("tabindex", "-1");
    box.setAttribute("tabindex", "0");
    box.focus();
  }

  /** Return the node that is pointed at, in the tree or in the text. */
  function current() {
    const { node, point } = store.state;
    if (node !== null) return beam.nodes[node] ?? null;
    if (point?.side !== "target") return null;
    return beam.nodes.find((each) => each.state === "chosen" && each.step === point.first) ?? null;
  }

  function mark() {
    const here = current();
    const path = new Set();
    for (let node = here; node; node = node.parent === null ? null : at(beam.nodes, node.parent)) path.add(node.id);
    const colours = theme();
    for (const node of beam.nodes) {
      const [box] = parts.get(node.id) ?? [];
      const chosen = node.state === "chosen";
      box?.setAttribute("stroke", path.has(node.id) ? colours.ink : chosen ? colours.accent : colours.line);
      box?.setAttribute("stroke-width", path.has(node.id) ? "2" : "1");
    }
    card.replaceChildren(
      ...(here
        ? told(here)
        : [
            make(
              "p",
              { className: "dv-note" },
              "Point at a piece to see its scores and where its step looked; click to hold it.",
            ),
          ]),
    );
  }

  /** @param {BeamNode} node */
  function told(node) {
    const step = node.state === "chosen" ? inside.look.steps[node.step] : undefined;
    const margin = step && step.best[1] ? Math.exp(step.best[0]?.[1] ?? 0) - Math.exp(step.best[1][1]) : null;
    const facts = [
      `step ${node.step + 1}`,
      `probability ${probability(node.log_probability)}`,
      `sum of logs ${node.sum.toFixed(2)}`,
      `by length ${node.score.toFixed(2)}`,
      MEANING[node.state],
    ];
    const best = step
      ? make(
          "p",
          { className: "dv-note" },
          "Likeliest: ",
          step.best.map(([piece, value]) => `${piece.trim() || "␣"} ${probability(value)}`).join(" · "),
          margin === null ? "" : ` (margin ${percent(margin)})`,
        )
      : "";
    const text = make(
      "p",
      {},
      make("b", {}, node.piece.trim() || "␣"),
      " ",
      make("span", { className: "dv-note" }, facts.join(" · ")),
    );
    const soFar = make("p", { className: "dv-sofar", dir: "auto" }, node.text);
    const ends = node.piece === last();
    const more = go && !ends ? [button("Continue from here", () => go(node.text))] : [];
    return [text, soFar, best, ...more];
  }

  /** @param {Set<keyof State>} changes */
  function draw(changes) {
    if (changes.has("theme")) paint();
    else if (changes.has("point") || changes.has("node")) mark();
  }

  const rows = () =>
    beam.nodes.map((node) => [
      node.id,
      node.parent ?? "",
      node.step,
      node.piece,
      node.log_probability,
      node.sum,
      node.score,
      node.state,
      node.text,
    ]);
  const titles = ["node", "parent", "step", "piece", "log probability", "sum", "score", "state", "text"];
  paint();
  return {
    element,
    draw,
    drawing: () => beamDrawing(beam, theme()),
    table: () =>
      tableOf(
        "Beam",
        titles.slice(1),
        rows().map((row) => /** @type {[string, ...string[]]} */ (row.map(String))),
      ),
    csv: () => csv([titles, ...rows()]),
  };
}
