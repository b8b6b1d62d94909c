// The page of a training: hears of it, and hands what it hears to each part.

import {Curve} from "./curve.js";
import {fillList, find} from "./elements.js";
import {offerLooks} from "./look.js";
import {duration, short, whole} from "./numbers.js";
import {showSamples} from "./samples.js";
import {listen, SITUATIONS} from "./summary.js";
import {fillTable} from "./table.js";

/** @typedef {import("./summary.js").CurveName} CurveName @typedef {import("./summary.js").Summary} Summary */

/** @type {Record<CurveName, import("./curve.js").Look>} */
const LOOKS = {
  loss: {title: "Loss", about: "per target token, without smoothing"},
  perplexity: {title: "Perplexity", about: "on the validation text", log: true},
  score: {title: "Score", about: "of some validation examples, greedily", zero: true},
  rate: {title: "Learning rate", about: "at each step", zero: true},
  speed: {title: "Tokens per second", about: "of the target", zero: true},
};

const names = /** @type {CurveName[]} */ (Object.keys(LOOKS));
const curves = names.map((name) => ({name, curve: new Curve(LOOKS[name], follow)}));
find("curves", HTMLDivElement).append(...curves.map(({curve}) => curve.element));

const numbers = find("numbers", HTMLDetailsElement);
/** @type {Summary | null} */
let latest = null;

/** Let all curves follow one cursor. @param {number | null} step */
function follow(step) {
  for (const {curve} of curves) curve.follow(step);
}

/** Show where the training stands. @param {Summary} summary */
function showState({run, situation, step, steps, seconds, left, best, speed}) {
  document.title = situation === "training" && steps ? `${Math.floor((100 * step) / steps)} % · ${run}` : run;
  find("run", HTMLHeadingElement).textContent = run;
  const said = find("situation", HTMLParagraphElement);
  if (said.textContent !== SITUATIONS[situation]) said.textContent = SITUATIONS[situation];
  said.dataset.situation = situation;
  const progress = find("progress", HTMLProgressElement);
  progress.hidden = !steps || !step;
  progress.value = steps ? step / steps : 0;
  /** @type {[string, string][]} */
  const rows = [];
  if (step) rows.push(["Step", steps ? `${whole(step)} of ${whole(steps)}` : whole(step)]);
  if (seconds !== null) rows.push(["Trained", duration(seconds)]);
  if (left !== null) rows.push(["Left", duration(left)]);
  if (best) rows.push(["Best validation loss", `${short(best.loss)} at step ${whole(best.step)}`]);
  if (speed !== null && situation === "training") rows.push(["Speed", `${whole(speed)} tokens/s`]);
  fillList(find("now", HTMLDListElement), rows);
}

/** Show what the server has told. @param {Summary} summary */
function heard(summary) {
  latest = summary;
  showState(summary);
  const steps = Object.values(summary.curves).flatMap(({training = [], validation = []}) =>
    [...training, ...validation].map(([step]) => step));
  for (const {name, curve} of curves) {
    if (name === "score" && summary.measure) curve.call(summary.measure);
    curve.show(summary.curves[name], [Math.min(...steps), Math.max(...steps)]);
  }
  if (numbers.open) fillTable(find("table", HTMLTableElement), summary);
  showSamples(summary);
  offerLooks(summary);
  find("about", HTMLElement).hidden = !Object.keys(summary.facts).length;
  fillList(find("facts", HTMLDListElement), Object.entries(summary.facts));
}

numbers.addEventListener("toggle", () => {
  if (latest && numbers.open) fillTable(find("table", HTMLTableElement), latest);
});
listen(heard, (here) => { find("lost", HTMLParagraphElement).hidden = here; });
