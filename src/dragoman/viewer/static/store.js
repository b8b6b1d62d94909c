// The state of the viewer: the hovered and the selected parts. Panels subscribe to changes.

/**
 * @typedef {import("./attention-data.js").Kind} Kind
 * @typedef {import("./attention-data.js").HeadPosition} HeadPosition
 * @typedef {import("./attention-data.js").Point} Point
 * @typedef {import("./attention-data.js").Units} Units
 * @typedef {"heads" | "alignment" | "beam" | "compare"} Tab
 * @typedef {"matrix" | "lines" | "table"} View
 * @typedef {{ tab: Tab, kind: Kind, heads: HeadPosition[], view: View, units: Units, grey: boolean, method: string,
 *   point: Point | null, partner: Point | null, node: number | null, locked: boolean, theme: number }} State
 *   point: the hovered or focused unit; partner: the other side of a cell or a link; node: of the beam
 * @typedef {(changed: Set<keyof State>) => void} Listener
 */

/** Holds the state and notifies listeners of changes once per frame. */
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
    if (this.changed.size && !this.frame) this.frame = requestAnimationFrame(() => this.notify());
  }

  /** Notify listeners now. */
  notify() {
    const { changed } = this;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.changed = new Set();
    for (const listener of [...this.listeners]) listener(changed);
  }

  /**
   * Set the hovered unit, unless one is locked.
   * @param {Point | null} point
   * @param {{ partner?: Point | null, node?: number | null }} [more]
   */
  point(point, { partner = null, node = null } = {}) {
    if (!this.state.locked) this.set({ point, partner, node });
  }

  /**
   * Lock a unit; a second call with the same unit unlocks it.
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

  /** Unlock and clear the hovered unit. */
  clear() {
    this.set({ point: null, partner: null, node: null, locked: false });
  }

  /** @param {Listener} listener */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }
}
