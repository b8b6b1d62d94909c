// Output that is a bracketed tree, drawn as a tree: hovering over a constituent highlights its words.

import { make } from "./dom.js";
import { toSvg, textWidth } from "./drawing-context.js";

/**
 * @typedef {import("./colours.js").Theme} Theme
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./drawing-context.js").Drawing} Drawing
 * @typedef {import("./store.js").Store} Store
 * @typedef {import("./store.js").State} State
 * @typedef {{ label: string, start: number, stop: number, children: Constituent[] }} Constituent
 *   with its range of characters, brackets included
 */

const DEPTH = 46; // pixels between levels

/**
 * Parse brackets like (S (NP She) (VP sleeps)); return null if they are not balanced.
 * @param {string} text
 * @returns {Constituent | null}
 */
export function parseBrackets(text) {
  /** @type {Constituent[]} */
  const open = [{ label: "", start: 0, stop: text.length, children: [] }];
  for (const match of text.matchAll(/\(\s*([^\s()]*)|\)|[^\s()]+/g)) {
    const [token, name] = match;
    const node = { label: name ?? token, start: match.index, stop: match.index + token.length, children: [] };
    const parent = open.at(-1);
    if (!parent) return null;
    if (token === ")") Object.assign(parent, { stop: match.index + 1 });
    else parent.children.push(node);
    if (token === ")") open.pop();
    else if (token.startsWith("(")) open.push(node);
  }
  const root = open[0]?.children[0];
  return open.length === 1 && root && root.children.length ? root : null;
}

/**
 * Return the drawing of a tree: each parent above the middle of its children.
 * @param {Constituent} root
 * @param {Theme} theme
 * @param {(node: Constituent, element: Element | null) => void} [drawn]
 * @returns {Drawing}
 */
export function treeDrawing(root, theme, drawn) {
  /** @type {Map<Constituent, { x: number, depth: number }>} */
  const positions = new Map();
  let [x, deepest] = [8, 0];
  /** @type {(node: Constituent, depth: number) => number} */
  const put = (node, depth) => {
    deepest = Math.max(deepest, depth);
    const wide = textWidth(node.label, 14) + 16;
    const inner = node.children.map((child) => put(child, depth + 1));
    const middle = inner.length ? ((inner[0] ?? 0) + (inner.at(-1) ?? 0)) / 2 : x + wide / 2;
    if (!inner.length) x += wide;
    positions.set(node, { x: middle, depth });
    return middle;
  };
  put(root, 0);
  const y = (/** @type {number} */ depth) => 18 + depth * DEPTH;
  return {
    width: x + 8,
    height: y(deepest) + 18,
    draw(context) {
      for (const [node, place] of positions) {
        for (const child of node.children) {
          const below = positions.get(child) ?? place;
          context.curve([place.x, y(place.depth) + 10], [below.x, y(below.depth) - 10], { stroke: theme.line }, true);
        }
      }
      for (const [node, place] of positions) {
        const leaf = !node.children.length;
        const writing = { size: 14, anchor: /** @type {const} */ ("middle"), fill: leaf ? theme.ink : theme.faint };
        drawn?.(node, context.text(place.x, y(place.depth), node.label, { ...writing, bold: leaf }));
      }
    },
  };
}

/**
 * Show the output as a tree, if it is one.
 * @param {AttentionData} data
 * @param {Store} store
 * @param {() => Theme} theme
 */
export function treePanel(data, store, theme) {
  const element = make("div", { className: "dv-scroll" });
  const root = parseBrackets(data.record.target.text);

  /**
   * @param {Constituent} node
   * @param {Element | null} text
   */
  function addHandlers(node, text) {
    const pieces = data.record.target.pieces.filter(({ span }) => span && span[0] < node.stop && span[1] > node.start);
    const [first, last] = [pieces[0], pieces.at(-1)];
    if (!(text instanceof SVGElement) || !first || !last) return;
    const point = { side: /** @type {const} */ ("target"), first: first.first, end: last.end };
    text.onpointerenter = () => store.point(point);
    text.onpointerleave = () => store.point(null);
    text.onclick = () => store.lock(point);
  }

  function paint() {
    if (!root) return;
    const svg = toSvg(treeDrawing(root, theme(), addHandlers));
    svg.setAttribute("class", "dv-lines");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "Parse tree");
    element.replaceChildren(svg);
  }

  paint();
  return {
    element,
    draw: (/** @type {Set<keyof State>} */ changes) => (changes.has("theme") ? paint() : undefined),
  };
}
