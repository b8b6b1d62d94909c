// The attention viewer. A page calls show(root, record, actions) and nothing else.
//
// Without actions (in a saved page), controls that need a model are hidden. All text is set with textContent.

import { alignmentPanel } from "./alignment.js";
import { beamPanel } from "./beam.js";
import { changedPieces, changesBox } from "./changes.js";
import { readTheme } from "./colours.js";
import { comparePanel } from "./compare.js";
import { button, radioGroup, make, roveFocus, makeDetails } from "./dom.js";
import { headsPanel } from "./heads.js";
import { AttentionData } from "./attention-data.js";
import { fromHash, toHash } from "./permalink.js";
import { canSavePage, download, savePage, savePng, saveSvg } from "./save.js";
import { sentencesPanel } from "./sentences.js";
import { spectrogramPanel } from "./spectrogram.js";
import { Store } from "./store.js";
import { treePanel } from "./tree.js";

/**
 * @typedef {import("./attention-data.js").Head} Head
 * @typedef {import("./attention-data.js").HeadPosition} HeadPosition
 * @typedef {import("./attention-data.js").Kind} Kind
 * @typedef {import("./attention-data.js").AttentionRecord} AttentionRecord
 * @typedef {import("./attention-data.js").Report} Report
 * @typedef {import("./drawing-context.js").Drawing} Drawing
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Tab} Tab
 * @typedef {{ text?: string, ablate_heads?: Head[], prefix?: string, trace?: boolean, checkpoint?: number }} Change
 * @typedef {{ rerun?: (change: Change) => Promise<any>, report?: () => Promise<any>,
 *   checkpoints?: () => Promise<any> }} Actions
 * @typedef {{ element: HTMLElement, draw: (changes: Set<keyof State>) => void, destroy?: () => void,
 *   drawing?: () => Drawing, csv?: () => string, table?: () => HTMLElement }} Panel
 */

let owner = /** @type {Viewer | null} */ (null); // of the URL: the first viewer of a page

/**
 * Show a record in an element.
 * @param {HTMLElement} root
 * @param {any} record
 * @param {Actions} [actions]
 * @returns {{ update: (record: any) => void, destroy: () => void }}
 */
export function show(root, record, actions = {}) {
  return new Viewer(root, record, actions);
}

/** Shows a record, the changes made to it, and the open panel. */
class Viewer {
  /**
   * @param {HTMLElement} root
   * @param {AttentionRecord} record
   * @param {Actions} actions
   */
  constructor(root, record, actions) {
    this.root = root;
    this.actions = actions;
    this.record = this.base = record;
    this.data = new AttentionData(record);
    /** @type {Change} */
    this.change = {};
    /** @type {Report | null} */
    this.report = record.report;
    /** @type {number[]} */
    this.checkpoints = [];
    this.requests = 0;
    /** @type {{ name: string, record: AttentionRecord } | null} */
    this.other = record.compare && { name: recordName(record.compare), record: record.compare };
    /** @type {Panel[]} */
    this.panels = [];
    owner ??= this;
    root.classList.add("dv");
    this.theme = readTheme(root);
    this.store = new Store(this.firstState());
    this.store.subscribe((changes) => this.draw(changes));
    this.status = make("p", { className: "dv-status" });
    this.status.setAttribute("role", "status");
    this.onkey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") this.store.clear();
    };
    this.ontheme = () => this.updateTheme();
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.watcher = new MutationObserver(this.ontheme);
    document.addEventListener("keydown", this.onkey);
    this.dark.addEventListener("change", this.ontheme);
    this.watcher.observe(document.documentElement, {
      attributes: true,
      attributeFilter: ["class", "data-theme", "style"],
    });
    this.build();
    this.loadExtras();
    this.loadBeam();
  }

  /** @returns {State} */
  firstState() {
    const { record, data } = this;
    const count = (/** @type {"words" | "pieces"} */ units) => record.source[units].length + record.target[units].length;
    return {
      tab: "heads",
      kind: data.firstKind(),
      heads: data.allHeads(data.firstKind()),
      view: "matrix",
      // Scripts without spaces have one word per sentence: show pieces instead.
      units: count("words") <= 4 && count("pieces") > count("words") ? "pieces" : "words",
      grey: true,
      method: record.alignment.preferred,
      point: null,
      partner: null,
      node: null,
      locked: false,
      theme: 0,
      ...(owner === this ? fromHash(location.hash, data) : {}),
    };
  }

  /** Load the head report and the list of checkpoints, where available. */
  async loadExtras() {
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

  /** Rebuild the page for the current record. */
  build() {
    const { record, store } = this;
    this.close();
    const text = sentencesPanel(this.data, store, { changed: changedPieces(this.base, record) });
    const skin = SKINS.get(record.skin)?.(this.data, store, () => this.theme);
    const units = radioGroup(
      "Show",
      /** @type {["words" | "pieces", string][]} */ ([
        ["words", "Words"],
        ["pieces", "Sub-words"],
      ]),
      store.state.units,
      (value) => store.set({ units: value }),
    );
    units.element.hidden = hasSingleUnits(record.source) && hasSingleUnits(record.target);
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
    top.hidden = store.state.tab === "compare" && this.pair().length > 1; // both records are shown below instead
    this.root.replaceChildren(this.title(), top, ...this.changes(), this.status, bar, body, ...this.foot(panel));
  }

  /** Return a heading if the viewer is the whole page. */
  title() {
    if (!document.body.classList.contains("dv-page")) return "";
    document.title = this.record.title ? `Attention: ${this.record.title}` : "Attention";
    return make(
      "header",
      { className: "dv-row" },
      make("h1", {}, "Attention"),
      make("bdi", { className: "dv-note" }, this.record.title),
    );
  }

  /** Return the checkpoint slider and the save button. */
  tools() {
    const tools = make("div", { className: "dv-row" });
    if (this.actions.rerun && this.checkpoints.length > 1) tools.append(this.slider());
    if (canSavePage()) tools.append(button("Save as HTML", () => this.save()));
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
    const { other, record, report } = this;
    await savePage(
      { ...record, report, compare: other?.record ?? (record === this.base ? null : this.base) },
      fileName(record),
    );
  }

  /** Return the differences from the first record, with undo buttons. */
  changes() {
    const { record, base, change } = this;
    if (record === base) return [];
    const causes = record.ablated_heads.map(([kind, layer, head]) => ({
      text: `${kind} ${layer + 1}.${head + 1} ablated`,
      undo: () => this.toggle(kind, [[layer, head]]),
    }));
    if (change.prefix) causes.push({ text: `prefix “${change.prefix}”`, undo: () => this.ask({ prefix: "" }) });
    if (change.checkpoint !== undefined) {
      causes.push({ text: `step ${change.checkpoint}`, undo: () => this.ask({ checkpoint: undefined }) });
    }
    return [changesBox(base, record, causes, () => this.reset())];
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
    roveFocus(bar, items, items.length);
    items.forEach((item, i) => (item.tabIndex = names[i] === store.state.tab ? 0 : -1));
    return bar;
  }

  /** @param {Tab} tab */
  has(tab) {
    if (tab === "alignment") return this.record.kinds.cross.layers > 0;
    if (tab === "beam") return Boolean(this.record.beam || this.actions.rerun);
    return tab !== "compare" || Boolean(this.other || this.record !== this.base || this.actions.rerun);
  }

  /** @param {Tab} tab */
  go(tab) {
    this.store.set({ tab });
    this.build();
    /** @type {HTMLElement | null} */ (this.root.querySelector(".dv-tab[aria-selected=true]"))?.focus();
    this.loadBeam();
  }

  /** Load the beam tree if its tab is open and the record has none. */
  loadBeam() {
    if (this.store.state.tab === "beam" && !this.record.beam) this.ask({ trace: true });
  }

  /** @returns {Panel} */
  panel() {
    const { data, store, actions, record } = this;
    const theme = () => this.theme;
    if (!this.has(store.state.tab)) store.state.tab = "heads";
    const { tab } = store.state;
    if (tab === "alignment") return alignmentPanel(data, store, theme);
    if (tab === "beam" && record.beam)
      return beamPanel(data, record.beam, store, theme, actions.rerun ? (prefix) => this.ask({ prefix }) : null);
    if (tab === "beam")
      return {
        element: make("p", { className: "dv-note" }, "Running the search again to record the beam …"),
        draw() {},
      };
    if (tab === "compare")
      return comparePanel(this.pair(), store, theme, actions.rerun ? (text) => this.compare(text) : null);
    return headsPanel(
      data,
      store,
      theme,
      this.report,
      actions.rerun && record.can_ablate ? (kind, heads) => this.toggle(kind, heads) : null,
    );
  }

  pair() {
    const { other, record, base } = this;
    const here = { name: recordName(record), data: new AttentionData(record) };
    if (other) return [here, { name: other.name, data: new AttentionData(other.record) }];
    return record === base
      ? [here]
      : [
          { name: "Before", data: new AttentionData(base) },
          { ...here, name: "Now" },
        ];
  }

  /**
   * Return the export buttons of a panel, and its table.
   * @param {Panel} panel
   */
  foot(panel) {
    const { drawing, csv, table } = panel;
    const name = `${fileName(this.record)}-${this.store.state.tab}`;
    const row = make("div", { className: "dv-row dv-foot" });
    if (drawing) {
      row.append(make("span", { className: "dv-note" }, "Save this panel:"));
      row.append(button("PNG", () => savePng(drawing(), name, this.theme.paper), "dv-plain"));
      row.append(button("SVG", () => saveSvg(drawing(), name, this.theme.paper), "dv-plain"));
    }
    if (csv)
      row.append(button("CSV", () => download(new Blob([csv()], { type: "text/csv" }), `${name}.csv`), "dv-plain"));
    return [row, ...(table ? [makeDetails("Show as a table", table).element] : [])];
  }

  /**
   * Ablate heads, or restore them if all of them are ablated.
   * @param {Kind} kind
   * @param {HeadPosition[]} positions
   */
  toggle(kind, positions) {
    const key = (/** @type {Head} */ head) => head.join(" ");
    const wanted = positions.map(([layer, head]) => /** @type {Head} */ ([kind, layer, head]));
    const now = new Set(this.record.ablated_heads.map(key));
    const allOff = wanted.every((head) => now.has(key(head)));
    const chosen = new Set(wanted.map(key));
    const others = this.record.ablated_heads.filter((head) => !chosen.has(key(head)));
    this.ask({ ablate_heads: allOff ? others : [...others, ...wanted] });
  }

  /**
   * Request a new record with some options changed.
   * @param {Change} change
   */
  async ask(change) {
    const { rerun } = this.actions;
    if (!rerun) return;
    const wanted = { ...this.change, trace: Boolean(this.record.beam), ...change };
    const number = ++this.requests;
    const result = await this.wait(rerun(clean(wanted)));
    if (number !== this.requests) return; // superseded by a newer request
    if (!result) return this.record.beam || this.store.state.tab !== "beam" ? undefined : this.go("heads");
    this.change = wanted;
    if (!wanted.ablate_heads?.length && !wanted.prefix && wanted.checkpoint === undefined) this.base = result;
    this.replace(result);
  }

  /** @param {string} text */
  async compare(text) {
    const result = await this.wait(this.actions.rerun?.({ text }));
    if (!result) return;
    this.other = { name: recordName(result), record: result };
    this.build();
  }

  /**
   * Wait for a record and show that it is loading; return undefined and show the error if it fails.
   * @param {Promise<AttentionRecord> | undefined} promise
   */
  async wait(promise) {
    this.root.classList.add("dv-waiting");
    this.status.textContent = "";
    try {
      return await promise;
    } catch (problem) {
      this.status.textContent = problem instanceof Error ? problem.message : "The request failed; try again.";
      return undefined;
    } finally {
      this.root.classList.remove("dv-waiting");
    }
  }

  /** Restore the first record. */
  reset() {
    this.change = {};
    this.replace(this.base);
  }

  /** @param {AttentionRecord} record */
  replace(record) {
    this.record = record;
    this.data = new AttentionData(record);
    const { state } = this.store;
    if (!this.data.kinds().includes(state.kind)) state.kind = this.data.firstKind();
    const { layers, heads } = record.kinds[state.kind];
    const there = state.heads.filter(([layer, head]) => layer < layers && head < heads);
    Object.assign(state, {
      heads: there.length ? there : this.data.allHeads(state.kind),
      point: null,
      partner: null,
      node: null,
      locked: false,
    });
    if (!record.alignment.methods[state.method]) state.method = record.alignment.preferred;
    this.build();
  }

  /**
   * Show another record as the first one.
   * @param {AttentionRecord} record
   */
  update(record) {
    this.base = record;
    this.change = {};
    this.report = record.report ?? this.report;
    this.other = record.compare ? { name: recordName(record.compare), record: record.compare } : null;
    this.requests++;
    this.replace(record);
    this.loadBeam();
  }

  /** @param {Set<keyof State>} changes */
  draw(changes) {
    for (const panel of this.panels) panel.draw(changes);
    if (owner !== this || !URL_STATE.some((key) => changes.has(key))) return;
    try {
      history.replaceState(history.state, "", toHash(this.store.state, location.hash));
    } catch {
      // A frame may not be allowed to change its URL.
    }
  }

  updateTheme() {
    const before = JSON.stringify(this.theme);
    this.theme = readTheme(this.root);
    if (JSON.stringify(this.theme) !== before) this.store.set({ theme: this.store.state.theme + 1 });
  }

  close() {
    for (const panel of this.panels) panel.destroy?.();
    this.panels = [];
  }

  /** Restore the element to its initial state. */
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
 * Additional panels below the text, by skin.
 * @type {Map<string, (data: AttentionData, store: Store, theme: () => import("./colours.js").Theme) => Panel>}
 */
const SKINS = new Map([
  ["brackets", treePanel],
  ["spectrogram", spectrogramPanel],
]);

/** @type {(keyof State)[]} state that is kept in the URL */
const URL_STATE = ["tab", "kind", "heads", "view", "units", "method", "locked"];

/** @param {import("./attention-data.js").Sentence} sentence */
const hasSingleUnits = (sentence) => sentence.words.length === sentence.pieces.length;

/** @param {AttentionRecord} record */
const recordName = (record) =>
  [record.model, ...record.ablated_heads.map(([kind, layer, head]) => `without ${kind} ${layer + 1}.${head + 1}`)]
    .filter(Boolean)
    .join(", ") || "This record";

/** @param {AttentionRecord} record */
const fileName = (record) =>
  `attention-${
    record.source.text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
      .slice(0, 40)
      .replaceAll(/^-|-$/g, "") || "record"
  }`;

/**
 * Drop unset options.
 * @param {Change} change
 * @returns {Change}
 */
const clean = (change) =>
  Object.fromEntries(
    Object.entries(change).filter(([, value]) => value !== undefined && value !== "" && value !== false),
  );
