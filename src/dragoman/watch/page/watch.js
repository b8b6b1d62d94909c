// The live page of a training: receives summaries and updates the parts of the page.

import {Curve} from "./curve.js";
import {find, make} from "../../viewer/static/dom.js";
import {updateInspection} from "./inspection.js";
import {formatDuration, formatValue, formatInteger} from "./numbers.js";
import {showSamples} from "./samples.js";
import {STATUS_TEXTS, subscribe} from "./summary.js";
import {fillTable} from "./table.js";

/** @typedef {import("./summary.js").CurveName} CurveName @typedef {import("./summary.js").Summary} Summary */

/** @type {Record<CurveName, import("./curve.js").ChartOptions>} */
const CHARTS = {
  loss: {title: "Loss", description: "per target token, without label smoothing"},
  perplexity: {title: "Perplexity", description: "on the validation set", log: true},
  score: {title: "Score", description: "of some validation samples, greedy decoding", zero: true},
  rate: {title: "Learning rate", description: "at each step", zero: true},
  speed: {title: "Tokens per second", description: "target tokens", zero: true},
};

const names = /** @type {CurveName[]} */ (Object.keys(CHARTS));
const curves = names.map((name) => ({name, curve: new Curve(CHARTS[name], moveCursors)}));
find("curves", HTMLDivElement).append(...curves.map(({curve}) => curve.element));

const numbers = find("numbers", HTMLDetailsElement);
/** @type {Summary | null} */
let latest = null;

/** Move the cursors of all charts. @param {number | null} step */
function moveCursors(step) {
  for (const {curve} of curves) curve.follow(step);
}

/** Fill a list of names and values. @param {HTMLElement} list @param {[name: string, value: string][]} rows */
function fillList(list, rows) {
  list.replaceChildren(...rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

/** Show the status of the training. @param {Summary} summary */
function showStatus({run, status, step, steps, seconds, seconds_left, best_validation, tokens_per_second}) {
  document.title = status === "training" && steps ? `${Math.floor((100 * step) / steps)} % · ${run}` : run;
  find("run", HTMLHeadingElement).textContent = run;
  const text = find("status", HTMLParagraphElement);
  if (text.textContent !== STATUS_TEXTS[status]) text.textContent = STATUS_TEXTS[status];
  text.dataset.status = status;
  const progress = find("progress", HTMLProgressElement);
  progress.hidden = !steps || !step;
  progress.value = steps ? step / steps : 0;
  /** @type {[string, string][]} */
  const rows = [];
  if (step) rows.push(["Step", steps ? `${formatInteger(step)} of ${formatInteger(steps)}` : formatInteger(step)]);
  if (seconds !== null) rows.push(["Elapsed", formatDuration(seconds)]);
  if (seconds_left !== null) rows.push(["Remaining", formatDuration(seconds_left)]);
  if (best_validation) {
    const {loss, step: bestStep} = best_validation;
    rows.push(["Best validation loss", `${formatValue(loss)} at step ${formatInteger(bestStep)}`]);
  }
  if (tokens_per_second !== null && status === "training") {
    rows.push(["Speed", `${formatInteger(tokens_per_second)} tokens/s`]);
  }
  fillList(find("now", HTMLDListElement), rows);
}

/** @param {Summary} summary */
function update(summary) {
  latest = summary;
  showStatus(summary);
  const steps = Object.values(summary.curves).flatMap(({training = [], validation = []}) =>
    [...training, ...validation].map(([step]) => step));
  for (const {name, curve} of curves) {
    if (name === "score" && summary.measure) curve.setTitle(summary.measure);
    curve.show(summary.curves[name], [Math.min(...steps), Math.max(...steps)]);
  }
  if (numbers.open) fillTable(find("table", HTMLTableElement), summary);
  showSamples(summary);
  updateInspection(summary);
  find("about", HTMLElement).hidden = !Object.keys(summary.facts).length;
  fillList(find("facts", HTMLDListElement), Object.entries(summary.facts));
}

numbers.addEventListener("toggle", () => {
  if (latest && numbers.open) fillTable(find("table", HTMLTableElement), latest);
});
subscribe(update, (isConnected) => { find("disconnected", HTMLParagraphElement).hidden = isConnected; });
