// One state for the whole viewer: what is pointed at, what is chosen. Whoever draws listens.

/**
 * @typedef {import("./look.js").Kind} Kind
 * @typedef {import("./look.js").HeadPlace} HeadPlace
 * @typedef {import("./look.js").Point} Point
 * @typedef {import("./look.js").Units} Units
 * @typedef {"heads" | "alignment" | "beam" | "compare"} Tab
 * @typedef {"matrix" | "lines" | "table"} View
 * @typedef {{ tab: Tab, kind: Kind, heads: HeadPlace[], view: View, units: Units, grey: boolean, method: string,
 *   point: Point | null, partner: Point | null, node: number | null, locked: boolean, theme: number }} State
 *   point: what the pointer or the keyboard is on; partner: the other side of a cell or a link; node: of the beam
 * @typedef {(changed: Set<keyof State>) => void} Listener
 */

/** Holds the state, and tells listeners once a frame what has changed. */
export class Store {
  /** @param {State} state */
  constructor(state) {
    this.state = state;
    /** @type {Set<Listener>} */
    this.listeners = new Set();
    /** @type {Set<keyof State>} */
    this.changed = new Set();
    this.frame = 0;
  }

  /** @param {Partial<State>} change */
  set(change) {
    for (const key of /** @type {(keyof State)[]} */ (Object.keys(change))) {
      if (JSON.stringify(this.state[key]) !== JSON.stringify(change[key])) this.changed.add(key);
    }
    Object.assign(this.state, change);
    if (this.changed.size && !this.frame) this.frame = requestAnimationFrame(() => this.tell());
  }

  /** Tell now what has changed. */
  tell() {
    const { changed } = this;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.changed = new Set();
    for (const listener of [...this.listeners]) listener(changed);
  }

  /**
   * Point at something, unless a lock holds what was pointed at before.
   * @param {Point | null} point
   * @param {{ partner?: Point | null, node?: number | null }} [more]
   */
  point(point, { partner = null, node = null } = {}) {
    if (!this.state.locked) this.set({ point, partner, node });
  }

  /**
   * Hold what is pointed at; the same once more frees it.
   * @param {Point | null} point
   * @param {{ partner?: Point | null, node?: number | null }} [more]
   */
  lock(point, { partner = null, node = null } = {}) {
    const { state } = this;
    const same =
      state.locked &&
      JSON.stringify([state.point, state.partner, state.node]) === JSON.stringify([point, partner, node]);
    this.set({ point, partner, node, locked: !same });
  }

  /** Free what was held, and point at nothing. */
  free() {
    this.set({ point: null, partner: null, node: null, locked: false });
  }

  /** @param {Listener} listener */
  listen(listener) {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }
}
