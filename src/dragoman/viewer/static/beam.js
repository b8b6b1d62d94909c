// The beam as a tree: every hypothesis that was in the beam, its status, and a button to continue from it.

import { button, make, visiblePiece, makeTable } from "./dom.js";
import { at, formatPercent, formatProbability } from "./attention-data.js";
import { csv } from "./matrix.js";
import { toSvg, truncate, textWidth } from "./drawing-context.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./attention-data.js").Beam} Beam
 * @typedef {import("./attention-data.js").BeamNode} BeamNode
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./drawing-context.js").Drawing} Drawing
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 * @typedef {{ x: number, y: number, width: number }} NodeBox
 */

const LEAF = 38; // pixels between leaves
const PIECE = 13;

const STATUS_TEXT = {
  chosen: "part of the output",
  finished: "complete, but scored lower",
  live: "incomplete when the search ended",
  pruned: "pruned from the beam",
};

/**
 * Return the label of a node; if pieces mark the beginning of words, a dot marks pieces inside of a word.
 * @param {BeamNode} node
 * @param {boolean} marked
 */
function nodeLabel(node, marked) {
  const inner = marked && /^[\p{L}\p{N}]/u.test(node.piece);
  return truncate(`${inner ? "·" : ""}${node.piece.trim() || "␣"}`, 16);
}

/** @param {BeamNode[]} nodes */
const marksWordStarts = (nodes) => nodes.some((node) => node.piece.startsWith(" "));

/**
 * Lay out the tree: one column per step, one row per leaf, the best child level with its parent.
 * @param {BeamNode[]} nodes
 */
function layoutTree(nodes) {
  const marked = marksWordStarts(nodes);
  /** @type {Map<number | null, BeamNode[]>} */
  const children = new Map();
  for (const node of nodes) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const rank = { chosen: 0, finished: 1, live: 2, pruned: 3 };
  const order = (/** @type {BeamNode} */ one, /** @type {BeamNode} */ two) =>
    rank[one.status] - rank[two.status] || two.sum - one.sum;
  const columns = /** @type {number[]} */ ([]);
  for (const node of nodes)
    columns[node.step] = Math.max(columns[node.step] ?? 44, textWidth(nodeLabel(node, marked), PIECE) + 30);
  const left = [24];
  columns.forEach((width, step) => (left[step + 1] = (left[step] ?? 0) + width));
  /** @type {Map<number, NodeBox>} */
  const boxes = new Map();
  let row = 0;
  /** @param {BeamNode} node */
  const visit = (node) => {
    const y = row;
    const own = (children.get(node.id) ?? []).sort(order);
    boxes.set(node.id, {
      x: left[node.step] ?? 0,
      y: y * LEAF + 34,
      width: textWidth(nodeLabel(node, marked), PIECE, node.status === "chosen") + 12,
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
  return { boxes, width: (left.at(-1) ?? 0) + 20, height: (row + 1) * LEAF + 24 };
}

/**
 * Return the drawing of a tree.
 * @param {Beam} beam
 * @param {Theme} theme
 * @param {(nodes: Map<number, Element[]>) => void} [drawn]
 * @returns {Drawing}
 */
export function beamDrawing({ nodes }, theme, drawn) {
  const { boxes, width, height } = layoutTree(nodes);
  const marked = marksWordStarts(nodes);
  return {
    width,
    height,
    draw(context) {
      /** @type {Map<number, Element[]>} */
      const parts = new Map();
      const boxOf = (/** @type {number} */ id) => /** @type {NodeBox} */ (boxes.get(id));
      for (const node of nodes) {
        const { x, y } = boxOf(node.id);
        const parent = node.parent === null ? null : boxOf(node.parent);
        const chosen = node.status === "chosen";
        const ink = {
          stroke: chosen ? theme.accent : theme.faint,
          width: chosen ? 2.5 : 1,
          opacity: chosen ? 1 : 0.55,
          dashed: node.status === "pruned",
        };
        context.curve(parent ? [parent.x + parent.width, parent.y] : [6, 34], [x, y], ink);
      }
      context.rect(2, 30, 8, 8, { fill: theme.faint, radius: 4 });
      for (const node of nodes) {
        const { x, y, width: wide } = boxOf(node.id);
        const chosen = node.status === "chosen";
        const opacity = node.status === "pruned" ? 0.75 : 1;
        const box = context.rect(x, y - 12, wide, 24, {
          fill: chosen ? theme.accent : theme.card,
          stroke: chosen ? theme.accent : theme.line,
          radius: 7,
        });
        const text = context.text(x + wide / 2, y, nodeLabel(node, marked), {
          size: PIECE,
          anchor: "middle",
          fill: chosen ? theme.paper : theme.ink,
          opacity,
          bold: chosen,
        });
        const number = context.text(
          x + wide / 2,
          y + 18,
          `${formatProbability(node.log_probability)}${node.status === "finished" ? " ■" : ""}`,
          { size: 9.5, anchor: "middle", fill: theme.faint },
        );
        parts.set(node.id, /** @type {Element[]} */ ([box, text, number].filter(Boolean)));
      }
      drawn?.(parts);
    },
  };
}

/**
 * Show the beam tree.
 * @param {AttentionData} data
 * @param {Beam} beam
 * @param {Store} store
 * @param {() => Theme} theme
 * @param {((prefix: string) => void) | null} continueFrom continues the search from a prefix, if a server is available
 */
export function beamPanel(data, beam, store, theme, continueFrom) {
  const picture = make("div", { className: "dv-scroll" });
  const card = make("div", { className: "dv-card" });
  const finished = beam.nodes.filter(
    (node) => node.status === "finished" || (node.status === "chosen" && node.piece === last()),
  ).length;
  const note = make(
    "p",
    { className: "dv-note" },
    `Beam width: ${beam.width}; nodes: ${beam.nodes.length}; finished hypotheses: ${finished}. A ■ marks a finished hypothesis that was not chosen. The number below a token is its probability.`,
  );
  const element = make("div", {}, note, picture, card);
  card.setAttribute("aria-live", "polite");
  /** @type {Map<number, Element[]>} */
  let parts = new Map();

  function last() {
    return data.record.target.pieces.at(-1)?.label;
  }

  function paint() {
    const svg = toSvg(beamDrawing(beam, theme(), (drawn) => (parts = drawn)));
    svg.setAttribute("class", "dv-beam");
    svg.setAttribute("role", "tree");
    svg.setAttribute("aria-label", "Beam search tree; use the arrow keys to move");
    picture.replaceChildren(svg);
    for (const node of beam.nodes) {
      const [box, label] = parts.get(node.id) ?? [];
      if (!(box instanceof SVGElement) || !(label instanceof SVGElement)) continue;
      box.setAttribute("role", "treeitem");
      box.setAttribute(
        "aria-label",
        `${visiblePiece(node.piece)}, probability ${formatProbability(node.log_probability)}, ${STATUS_TEXT[node.status]}`,
      );
      box.setAttribute("tabindex", node.id ? "-1" : "0");
      for (const part of [box, label]) {
        part.onpointerenter = () => store.point(...nodePoint(node));
        part.onpointerleave = () => store.point(null);
        part.onclick = () => store.lock(...nodePoint(node));
      }
      box.onfocus = () => store.point(...nodePoint(node));
      box.onkeydown = (event) => walk(event, node);
    }
    mark();
  }

  /**
   * Return the point of a node: a piece of the output if the node is part of it.
   * @param {BeamNode} node
   * @returns {[import("./attention-data.js").Point | null, { node: number }]}
   */
  const nodePoint = (node) => [
    node.status === "chosen" ? { side: "target", first: node.step, end: node.step + 1 } : null,
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
    if (event.key === "Enter") store.lock(...nodePoint(node));
    if (!next) return;
    event.preventDefault();
    const [box] = parts.get(next.id) ?? [];
    if (!(box instanceof SVGElement)) return;
    parts.get(node.id)?.[0]?.setAttribute("tabindex", "-1");
    box.setAttribute("tabindex", "0");
    box.focus();
  }

  /** Return the hovered node, in the tree or in the text. */
  function current() {
    const { node, point } = store.state;
    if (node !== null) return beam.nodes[node] ?? null;
    if (point?.side !== "target") return null;
    return beam.nodes.find((each) => each.status === "chosen" && each.step === point.first) ?? null;
  }

  function mark() {
    const here = current();
    const path = new Set();
    for (let node = here; node; node = node.parent === null ? null : at(beam.nodes, node.parent)) path.add(node.id);
    const colours = theme();
    for (const node of beam.nodes) {
      const [box] = parts.get(node.id) ?? [];
      const chosen = node.status === "chosen";
      box?.setAttribute("stroke", path.has(node.id) ? colours.ink : chosen ? colours.accent : colours.line);
      box?.setAttribute("stroke-width", path.has(node.id) ? "2" : "1");
    }
    card.replaceChildren(
      ...(here
        ? nodeDetails(here)
        : [
            make(
              "p",
              { className: "dv-note" },
              "Hover over a token to see its scores and its attention; click to lock it.",
            ),
          ]),
    );
  }

  /** @param {BeamNode} node */
  function nodeDetails(node) {
    const step = node.status === "chosen" ? data.record.steps[node.step] : undefined;
    const margin = step && step.top_choices[1] ? Math.exp(step.top_choices[0]?.[1] ?? 0) - Math.exp(step.top_choices[1][1]) : null;
    const facts = [
      `step ${node.step + 1}`,
      `probability ${formatProbability(node.log_probability)}`,
      `log-probability of the hypothesis ${node.sum.toFixed(2)}`,
      `length-normalised score ${node.score.toFixed(2)}`,
      STATUS_TEXT[node.status],
    ];
    const best = step
      ? make(
          "p",
          { className: "dv-note" },
          "Most likely: ",
          step.top_choices.map(([piece, value]) => `${piece.trim() || "␣"} ${formatProbability(value)}`).join(" · "),
          margin === null ? "" : ` (margin ${formatPercent(margin)})`,
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
    const more = continueFrom && !ends ? [button("Continue from here", () => continueFrom(node.text))] : [];
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
      node.status,
      node.text,
    ]);
  const titles = ["node", "parent", "step", "token", "log probability", "sum", "score", "status", "text"];
  paint();
  return {
    element,
    draw,
    drawing: () => beamDrawing(beam, theme()),
    table: () =>
      makeTable(
        "Beam",
        titles.slice(1),
        rows().map((row) => /** @type {[string, ...string[]]} */ (row.map(String))),
      ),
    csv: () => csv([titles, ...rows()]),
  };
}
