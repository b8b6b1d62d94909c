// The state in the address, so that what is seen can be sent to someone. Other keys of the address are left alone.

/**
 * @typedef {import("./look.js").HeadPlace} HeadPlace
 * @typedef {import("./look.js").Inside} Inside
 * @typedef {import("./look.js").Kind} Kind
 * @typedef {import("./store.js").State} State
 */

const KEYS = ["tab", "kind", "heads", "view", "units", "method", "lock"];

/**
 * Write a state as the part of an address behind "#".
 * @param {State} state
 * @param {string} hash
 */
export function toHash({ tab, kind, heads, view, units, method, point, locked }, hash) {
  const kept = new URLSearchParams(hash.replace(/^#/, ""));
  for (const key of KEYS) kept.delete(key);
  kept.set("tab", tab);
  kept.set("kind", kind);
  if (heads.length) kept.set("heads", heads.map((place) => place.map((i) => i + 1).join(".")).join(" "));
  kept.set("view", view);
  kept.set("units", units);
  kept.set("method", method);
  if (locked && point) kept.set("lock", `${point.side} ${point.first} ${point.end}`);
  return `#${kept}`;
}

/**
 * Read a state from an address, as far as it fits what is looked at.
 * @param {string} hash
 * @param {Inside} inside
 * @returns {Partial<State>}
 */
export function fromHash(hash, inside) {
  const found = new URLSearchParams(hash.replace(/^#/, ""));
  const { look } = inside;
  /** @type {Partial<State>} */
  const state = {};
  const read = (/** @type {string} */ key, /** @type {string[]} */ allowed) => {
    const value = found.get(key);
    return value !== null && allowed.includes(value) ? value : null;
  };
  const tab = read("tab", ["heads", "alignment", "beam", "compare"]);
  const view = read("view", ["matrix", "lines", "table"]);
  const units = read("units", ["words", "pieces"]);
  const kind = /** @type {Kind | null} */ (read("kind", inside.kinds()));
  const method = read("method", Object.keys(look.alignment.methods));
  if (tab) state.tab = /** @type {State["tab"]} */ (tab);
  if (view) state.view = /** @type {State["view"]} */ (view);
  if (units) state.units = /** @type {State["units"]} */ (units);
  if (method) state.method = method;
  if (kind) Object.assign(state, headsIn(found.get("heads") ?? "", kind, inside));
  const [side, first, end] = (found.get("lock") ?? "").split(" ");
  const [from, to] = [Number(first), Number(end)];
  if ((side === "source" || side === "target") && from >= 0 && to > from && to <= look[side].pieces.length) {
    Object.assign(state, { point: { side, first: from, end: to }, locked: true });
  }
  return state;
}

/**
 * @param {string} text
 * @param {Kind} kind
 * @param {Inside} inside
 * @returns {Partial<State>}
 */
function headsIn(text, kind, inside) {
  const wanted = new Set(text.split(" "));
  const heads = inside.everyHead(kind).filter(([layer, head]) => wanted.has(`${layer + 1}.${head + 1}`));
  return { kind, heads: heads.length ? heads : inside.everyHead(kind) };
}
