// The viewer's state in the URL fragment. Other keys of the fragment are preserved.

/**
 * @typedef {import("./attention-data.js").HeadPosition} HeadPosition
 * @typedef {import("./attention-data.js").AttentionData} AttentionData
 * @typedef {import("./attention-data.js").Kind} Kind
 * @typedef {import("./store.js").State} State
 */

const KEYS = ["tab", "kind", "heads", "view", "units", "method", "lock"];

/**
 * Return the URL fragment of a state.
 * @param {State} state
 * @param {string} hash
 */
export function toHash({ tab, kind, heads, view, units, method, point, locked }, hash) {
  const parameters = new URLSearchParams(hash.replace(/^#/, ""));
  for (const key of KEYS) parameters.delete(key);
  parameters.set("tab", tab);
  parameters.set("kind", kind);
  if (heads.length) parameters.set("heads", heads.map((position) => position.map((i) => i + 1).join(".")).join(" "));
  parameters.set("view", view);
  parameters.set("units", units);
  parameters.set("method", method);
  if (locked && point) parameters.set("lock", `${point.side} ${point.first} ${point.end}`);
  return `#${parameters}`;
}

/**
 * Read a state from a URL fragment; values that do not fit the record are ignored.
 * @param {string} hash
 * @param {AttentionData} data
 * @returns {Partial<State>}
 */
export function fromHash(hash, data) {
  const parameters = new URLSearchParams(hash.replace(/^#/, ""));
  const { record } = data;
  /** @type {Partial<State>} */
  const state = {};
  const read = (/** @type {string} */ key, /** @type {string[]} */ allowed) => {
    const value = parameters.get(key);
    return value !== null && allowed.includes(value) ? value : null;
  };
  const tab = read("tab", ["heads", "alignment", "beam", "compare"]);
  const view = read("view", ["matrix", "lines", "table"]);
  const units = read("units", ["words", "pieces"]);
  const kind = /** @type {Kind | null} */ (read("kind", data.kinds()));
  const method = read("method", Object.keys(record.alignment.methods));
  if (tab) state.tab = /** @type {State["tab"]} */ (tab);
  if (view) state.view = /** @type {State["view"]} */ (view);
  if (units) state.units = /** @type {State["units"]} */ (units);
  if (method) state.method = method;
  if (kind) Object.assign(state, headsIn(parameters.get("heads") ?? "", kind, data));
  const [side, first, end] = (parameters.get("lock") ?? "").split(" ");
  const [from, to] = [Number(first), Number(end)];
  if ((side === "source" || side === "target") && from >= 0 && to > from && to <= record[side].pieces.length) {
    Object.assign(state, { point: { side, first: from, end: to }, locked: true });
  }
  return state;
}

/**
 * @param {string} text
 * @param {Kind} kind
 * @param {AttentionData} data
 * @returns {Partial<State>}
 */
function headsIn(text, kind, data) {
  const wanted = new Set(text.split(" "));
  const heads = data.allHeads(kind).filter(([layer, head]) => wanted.has(`${layer + 1}.${head + 1}`));
  return { kind, heads: heads.length ? heads : data.allHeads(kind) };
}
