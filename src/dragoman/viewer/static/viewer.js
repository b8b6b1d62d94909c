// The attention viewer: one translation from inside. show(root, look, actions) is all that a page needs.
//
// Without actions (in a saved page) whatever needs a model is not offered. All text goes through textContent.

import { alignment } from "./alignment.js";
import { beamTree } from "./beam.js";
import { changedPieces, changesBox } from "./changes.js";
import { themeOf } from "./colours.js";
import { compared } from "./compare.js";
import { button, choice, make, rove, unfolding } from "./dom.js";
import { headsPanel } from "./heads.js";
import { Inside } from "./look.js";
import { fromHash, toHash } from "./permalink.js";
import { canSavePage, download, savePage, savePng, saveSvg } from "./save.js";
import { sentences } from "./sentences.js";
import { Store } from "./store.js";
import { targetTree } from "./tree.js";

/**
 * @typedef {import("./look.js").Head} Head
 * @typedef {import("./look.js").HeadPlace} HeadPlace
 * @typedef {import("./look.js").Kind} Kind
 * @typedef {import("./look.js").Look} Look
 * @typedef {import("./look.js").Report} Report
 * @typedef {import("./pen.js").Drawing} Drawing
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Tab} Tab
 * @typedef {{ text?: string, without?: Head[], prefix?: string, trace?: boolean, checkpoint?: number }} Change
 * @typedef {{ relook?: (change: Change) => Promise<any>, report?: () => Promise<any>,
 *   checkpoints?: () => Promise<any> }} Actions
 * @typedef {{ element: HTMLElement, draw: (changes: Set<keyof State>) => void, destroy?: () => void,
 *   drawing?: () => Drawing, csv?: () => string, table?: () => HTMLElement }} Panel
 */

let owner = /** @type {Viewer | null} */ (null); // of the address: the first viewer of a page

/**
 * Show a look in an element.
 * @param {HTMLElement} root
 * @param {any} look
 * @param {Actions} [actions]
 * @returns {{ update: (look: any) => void, destroy: () => void }}
 */
export function show(root, look, actions = {}) {
  return new Viewer(root, look, actions);
}

/** Holds the look, what was changed about it, and the panel that is open. */
class Viewer {
  /**
   * @param {HTMLElement} root
   * @param {Look} look
   * @param {Actions} actions
   */
  constructor(root, look, actions) {
    this.root = root;
    this.actions = actions;
    this.look = this.base = look;
    this.inside = new Inside(look);
    /** @type {Change} */
    this.change = {};
    /** @type {Report | null} */
    this.report = look.report;
    /** @type {number[]} */
    this.checkpoints = [];
    this.asked = 0;
    /** @type {{ name: string, look: Look } | null} */
    this.other = look.compare && { name: named(look.compare), look: look.compare };
    /** @type {Panel[]} */
    this.panels = [];
    owner ??= this;
    root.classList.add("dv");
    this.theme = themeOf(root);
    this.store = new Store(this.firstState());
    this.store.listen((changes) => this.draw(changes));
    this.said = make("p", { className: "dv-status" });
    this.said.setAttribute("role", "status");
    this.onkey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") this.store.free();
    };
    this.ontheme = () => this.retheme();
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.watcher = new MutationObserver(this.ontheme);
    document.addEventListener("keydown", this.onkey);
    this.dark.addEventListener("change", this.ontheme);
    this.watcher.observe(document.documentElement, {
      attributes: true,
      attributeFilter: ["class", "data-theme", "style"],
    });
    this.build();
    this.inquire();
    this.complete();
  }

  /** @returns {State} */
  firstState() {
    const { look, inside } = this;
    const count = (/** @type {"words" | "pieces"} */ units) => look.source[units].length + look.target[units].length;
    return {
      tab: "heads",
      kind: inside.firstKind(),
      heads: inside.everyHead(inside.firstKind()),
      view: "matrix",
      // One word a sentence, as in scripts without spaces, says nothing: begin with the pieces.
      units: count("words") <= 4 && count("pieces") > count("words") ? "pieces" : "words",
      grey: true,
      method: look.alignment.chosen,
      point: null,
      partner: null,
      node: null,
      locked: false,
      theme: 0,
      ...(owner === this ? fromHash(location.hash, inside) : {}),
    };
  }

  /** Ask for what the page may know beyond this sentence; do without it where there is nothing. */
  async inquire() {
    const [report, checkpoints] = await Promise.all([
      this.report ?? this.actions.report?.().catch(() => null),
      this.actions.checkpoints?.().catch(() => []),
    ]);
    this.report = report ?? null;
    const list = Array.isArray(checkpoints) ? checkpoints : (checkpoints?.checkpoints ?? []);
    this.checkpoints = list.map((/** @type {any} */ each) => Number(each?.step ?? each)).filter(Number.isFinite);
    this.checkpoints.sort((one, two) => one - two);
    if (this.report || this.checkpoints.length > 1) this.build();
  }

  /** Make everything anew for the look that is shown. */
  build() {
    const { look, store } = this;
    this.close();
    const text = sentences(this.inside, store, { changed: changedPieces(this.base, look) });
    const skin = SKINS.get(look.skin)?.(this.inside, store, () => this.theme);
    const units = choice(
      "Show",
      /** @type {["words" | "pieces", string][]} */ ([
        ["words", "Words"],
        ["pieces", "Sub-words"],
      ]),
      store.state.units,
      (value) => store.set({ units: value }),
    );
    units.element.hidden = same(look.source) && same(look.target);
    const bar = make(
      "div",
      { className: "dv-bar" },
      this.tabs(),
      make("div", { className: "dv-row" }, this.tools(), units.element),
    );
    const panel = this.panel();
    const body = make("div", { className: "dv-panel" }, panel.element);
    body.setAttribute("role", "tabpanel");
    body.setAttribute("aria-label", TABS[store.state.tab]);
    this.panels = [text, panel, ...(skin ? [skin] : [])];
    const top = make("div", { className: "dv-top" }, text.element, ...(skin ? [skin.element] : []));
    top.hidden = store.state.tab === "compare" && this.pair().length > 1; // it stands below then
    this.root.replaceChildren(this.title(), top, ...this.changes(), this.said, bar, body, ...this.foot(panel));
  }

  /** Return a heading where the viewer is the whole page. */
  title() {
    if (!document.body.classList.contains("dv-page")) return "";
    document.title = this.look.title ? `Attention: ${this.look.title}` : "Attention";
    return make(
      "header",
      { className: "dv-row" },
      make("h1", {}, "Attention"),
      make("bdi", { className: "dv-note" }, this.look.title),
    );
  }

  /** Return the slider over checkpoints and the button that saves the page. */
  tools() {
    const tools = make("div", { className: "dv-row" });
    if (this.actions.relook && this.checkpoints.length > 1) tools.append(this.slider());
    if (canSavePage()) tools.append(button("Save as page", () => this.save()));
    return tools;
  }

  slider() {
    const last = this.checkpoints.length - 1;
    const now = this.change.checkpoint === undefined ? last : this.checkpoints.indexOf(this.change.checkpoint);
    const input = make("input", { type: "range", min: "0", max: String(last), value: String(now) });
    const name = make("span", { className: "dv-note" }, `step ${this.checkpoints[now]}`);
    input.setAttribute("aria-label", "Checkpoint");
    input.oninput = () => (name.textContent = `step ${this.checkpoints[Number(input.value)]}`);
    input.onchange = () => this.ask({ checkpoint: this.checkpoints[Number(input.value)] });
    return make("label", { className: "dv-row dv-slider" }, input, name);
  }

  async save() {
    const { other, look, report } = this;
    await savePage(
      { ...look, report, compare: other?.look ?? (look === this.base ? null : this.base) },
      fileName(look),
    );
  }

  /** Return what is different from the first look, with the way back. */
  changes() {
    const { look, base, change } = this;
    if (look === base) return [];
    const causes = look.without.map(([kind, layer, head]) => ({
      text: `${kind} ${layer + 1}.${head + 1} off`,
      undo: () => this.toggle(kind, [[layer, head]]),
    }));
    if (change.prefix) causes.push({ text: `begins “${change.prefix}”`, undo: () => this.ask({ prefix: "" }) });
    if (change.checkpoint !== undefined) {
      causes.push({ text: `step ${change.checkpoint}`, undo: () => this.ask({ checkpoint: undefined }) });
    }
    return [changesBox(base, look, causes, () => this.reset())];
  }

  tabs() {
    const { store } = this;
    const names = /** @type {Tab[]} */ (Object.keys(TABS)).filter((tab) => this.has(tab));
    const items = names.map((tab) => {
      const item = button(TABS[tab], () => this.go(tab), "dv-tab");
      item.setAttribute("role", "tab");
      item.setAttribute("aria-selected", String(store.state.tab === tab));
      return item;
    });
    const bar = make("div", { className: "dv-tabs" }, ...items);
    bar.setAttribute("role", "tablist");
    rove(bar, items, items.length);
    items.forEach((item, i) => (item.tabIndex = names[i] === store.state.tab ? 0 : -1));
    return bar;
  }

  /** @param {Tab} tab */
  has(tab) {
    if (tab === "alignment") return this.look.kinds.cross.layers > 0;
    if (tab === "beam") return Boolean(this.look.beam || this.actions.relook);
    return tab !== "compare" || Boolean(this.other || this.look !== this.base || this.actions.relook);
  }

  /** @param {Tab} tab */
  go(tab) {
    this.store.set({ tab });
    this.build();
    /** @type {HTMLElement | null} */ (this.root.querySelector(".dv-tab[aria-selected=true]"))?.focus();
    this.complete();
  }

  /** Ask for the tree where it is to be shown and is not there. */
  complete() {
    if (this.store.state.tab === "beam" && !this.look.beam) this.ask({ trace: true });
  }

  /** @returns {Panel} */
  panel() {
    const { inside, store, actions, look } = this;
    const theme = () => this.theme;
    if (!this.has(store.state.tab)) store.state.tab = "heads";
    const { tab } = store.state;
    if (tab === "alignment") return alignment(inside, store, theme);
    if (tab === "beam" && look.beam)
      return beamTree(inside, look.beam, store, theme, actions.relook ? (prefix) => this.ask({ prefix }) : null);
    if (tab === "beam")
      return {
        element: make("p", { className: "dv-note" }, "Searching once more, and keeping what was tried …"),
        draw() {},
      };
    if (tab === "compare")
      return compared(this.pair(), store, theme, actions.relook ? (text) => this.compare(text) : null);
    return headsPanel(
      inside,
      store,
      theme,
      this.report,
      actions.relook && look.switchable ? (kind, places) => this.toggle(kind, places) : null,
    );
  }

  pair() {
    const { other, look, base } = this;
    const here = { name: named(look), inside: new Inside(look) };
    if (other) return [here, { name: other.name, inside: new Inside(other.look) }];
    return look === base
      ? [here]
      : [
          { name: "Before", inside: new Inside(base) },
          { ...here, name: "Now" },
        ];
  }

  /**
   * Return the ways to save a panel, and its table.
   * @param {Panel} panel
   */
  foot(panel) {
    const { drawing, csv, table } = panel;
    const name = `${fileName(this.look)}-${this.store.state.tab}`;
    const row = make("div", { className: "dv-row dv-foot" });
    if (drawing) {
      row.append(make("span", { className: "dv-note" }, "Save this panel:"));
      row.append(button("PNG", () => savePng(drawing(), name, this.theme.paper), "dv-plain"));
      row.append(button("SVG", () => saveSvg(drawing(), name, this.theme.paper), "dv-plain"));
    }
    if (csv)
      row.append(button("CSV", () => download(new Blob([csv()], { type: "text/csv" }), `${name}.csv`), "dv-plain"));
    return [row, ...(table ? [unfolding("The same as a table", table).element] : [])];
  }

  /**
   * Switch heads off, or on if all of them are off.
   * @param {Kind} kind
   * @param {HeadPlace[]} places
   */
  toggle(kind, places) {
    const key = (/** @type {Head} */ head) => head.join(" ");
    const wanted = places.map(([layer, head]) => /** @type {Head} */ ([kind, layer, head]));
    const now = new Set(this.look.without.map(key));
    const allOff = wanted.every((head) => now.has(key(head)));
    const chosen = new Set(wanted.map(key));
    const others = this.look.without.filter((head) => !chosen.has(key(head)));
    this.ask({ without: allOff ? others : [...others, ...wanted] });
  }

  /**
   * Look once more with something changed.
   * @param {Change} change
   */
  async ask(change) {
    const { relook } = this.actions;
    if (!relook) return;
    const wanted = { ...this.change, trace: Boolean(this.look.beam), ...change };
    const number = ++this.asked;
    const found = await this.wait(relook(clean(wanted)));
    if (number !== this.asked) return; // something newer was asked for, or shown
    if (!found) return this.look.beam || this.store.state.tab !== "beam" ? undefined : this.go("heads");
    this.change = wanted;
    if (!wanted.without?.length && !wanted.prefix && wanted.checkpoint === undefined) this.base = found;
    this.replace(found);
  }

  /** @param {string} text */
  async compare(text) {
    const found = await this.wait(this.actions.relook?.({ text }));
    if (!found) return;
    this.other = { name: named(found), look: found };
    this.build();
  }

  /**
   * Wait for a look, and say so; return nothing if it fails.
   * @param {Promise<Look> | undefined} promise
   */
  async wait(promise) {
    this.root.classList.add("dv-waiting");
    this.said.textContent = "";
    try {
      return await promise;
    } catch (problem) {
      this.said.textContent = problem instanceof Error ? problem.message : "That did not work; try again.";
      return undefined;
    } finally {
      this.root.classList.remove("dv-waiting");
    }
  }

  /** Go back to the first look. */
  reset() {
    this.change = {};
    this.replace(this.base);
  }

  /** @param {Look} look */
  replace(look) {
    this.look = look;
    this.inside = new Inside(look);
    const { state } = this.store;
    if (!this.inside.kinds().includes(state.kind)) state.kind = this.inside.firstKind();
    const { layers, heads } = look.kinds[state.kind];
    const there = state.heads.filter(([layer, head]) => layer < layers && head < heads);
    Object.assign(state, {
      heads: there.length ? there : this.inside.everyHead(state.kind),
      point: null,
      partner: null,
      node: null,
      locked: false,
    });
    if (!look.alignment.methods[state.method]) state.method = look.alignment.chosen;
    this.build();
  }

  /**
   * Show another look from now on, as the first one.
   * @param {Look} look
   */
  update(look) {
    this.base = look;
    this.change = {};
    this.report = look.report ?? this.report;
    this.other = look.compare ? { name: named(look.compare), look: look.compare } : null;
    this.asked++;
    this.replace(look);
    this.complete();
  }

  /** @param {Set<keyof State>} changes */
  draw(changes) {
    for (const panel of this.panels) panel.draw(changes);
    if (owner !== this || !KEPT.some((key) => changes.has(key))) return;
    try {
      history.replaceState(history.state, "", toHash(this.store.state, location.hash));
    } catch {
      // A page inside a page may not touch its address.
    }
  }

  retheme() {
    const before = JSON.stringify(this.theme);
    this.theme = themeOf(this.root);
    if (JSON.stringify(this.theme) !== before) this.store.set({ theme: this.store.state.theme + 1 });
  }

  close() {
    for (const panel of this.panels) panel.destroy?.();
    this.panels = [];
  }

  /** Leave the element as it was found. */
  destroy() {
    this.close();
    this.store.listeners.clear();
    document.removeEventListener("keydown", this.onkey);
    this.dark.removeEventListener("change", this.ontheme);
    this.watcher.disconnect();
    this.root.replaceChildren();
    this.root.classList.remove("dv");
    if (owner === this) owner = null;
  }
}

/** @type {Record<Tab, string>} */
const TABS = { heads: "Heads", alignment: "Alignment", beam: "Beam", compare: "Compare" };

/**
 * What stands below the text for tasks whose output is more than text.
 * @type {Map<string, (inside: Inside, store: Store, theme: () => import("./colours.js").Theme) => Panel>}
 */
const SKINS = new Map([["brackets", targetTree]]);

/** @type {(keyof State)[]} what belongs into the address */
const KEPT = ["tab", "kind", "heads", "view", "units", "method", "locked"];

/** @param {import("./look.js").Sentence} sentence */
const same = (sentence) => sentence.words.length === sentence.pieces.length;

/** @param {Look} look */
const named = (look) =>
  [look.model, ...look.without.map(([kind, layer, head]) => `without ${kind} ${layer + 1}.${head + 1}`)]
    .filter(Boolean)
    .join(", ") || "This one";

/** @param {Look} look */
const fileName = (look) =>
  `attention-${
    look.source.text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
      .slice(0, 40)
      .replaceAll(/^-|-$/g, "") || "look"
  }`;

/**
 * Leave out what was not asked for.
 * @param {Change} change
 * @returns {Change}
 */
const clean = (change) =>
  Object.fromEntries(
    Object.entries(change).filter(([, value]) => value !== undefined && value !== "" && value !== false),
  );
