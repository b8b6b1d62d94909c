// Which model is used: chosen by its languages and, where several serve the same pair or have none, by its name.

import { find, offer } from "./elements.js";

/**
 * @typedef {import("./service.js").Model} Model
 * @typedef {import("./service.js").Language} Language
 * @typedef {{ value: string, label: string }} Named
 * @typedef {{ chosen: Model, sources: Named[], others: () => Model[], from: (source: string) => void,
 *   swap: () => void }} Chooser
 */

/**
 * Draw the choice of languages and models, and call `changed` when another model is chosen.
 * @param {Model[]} models
 * @param {Language[]} languages
 * @param {string | null} wanted the name of the model to begin with, if it is there
 * @param {() => void} changed
 * @returns {Chooser}
 */
export function chooser(models, languages, wanted, changed) {
  const from = find("from", HTMLSelectElement);
  const to = find("to", HTMLSelectElement);
  const model = find("model", HTMLSelectElement);
  const first = models.find(({ name }) => name === wanted) ?? models[0];
  if (!first) throw new Error("a server serves at least one model");
  const translators = models.filter((each) => each.has_language_pair);
  const names = namesOf(translators, languages);

  const own = {
    chosen: first,
    sources: named(
      translators.map((each) => each.source),
      names,
    ),
    others: () =>
      models.filter(
        ({ name, source, noun }) => name !== own.chosen.name && source === own.chosen.source && noun === own.chosen.noun,
      ),
    /** @param {string} source */
    from: (source) =>
      choose(between(translators, source, own.chosen.target)[0] ?? translators.find((each) => each.source === source)),
    swap: () => choose(between(translators, own.chosen.target, own.chosen.source)[0]),
  };

  /** @param {Model | undefined} wanted */
  const choose = (wanted) => {
    if (!wanted) return;
    own.chosen = wanted;
    const { source, target, name } = wanted;
    const same = translators.length < models.length ? models : between(translators, source, target);
    const targets = translators.filter((each) => each.source === source).map((each) => each.target);
    offer(from, own.sources, source);
    offer(to, named(targets, names), target);
    offer(
      model,
      same.map((each) => ({ value: each.name, label: each.name })),
      name,
    );
    find("model-choice", HTMLElement).hidden = same.length < 2;
    for (const id of ["from-choice", "to-choice"]) find(id, HTMLElement).hidden = !wanted.has_language_pair;
    find("swap", HTMLElement).hidden = !between(translators, target, source).length;
    changed();
  };

  from.onchange = () => own.from(from.value);
  to.onchange = () => choose(between(translators, own.chosen.source, to.value)[0]);
  model.onchange = () => choose(models.find(({ name }) => name === model.value));
  choose(first);
  return own;
}

/**
 * Return the models that translate from one language into another.
 * @param {Model[]} models
 * @param {string} source
 * @param {string} target
 */
function between(models, source, target) {
  return models.filter((each) => each.source === source && each.target === target);
}

/**
 * Return what each language is called.
 * @param {Model[]} models
 * @param {Language[]} languages
 * @returns {Map<string, string>}
 */
function namesOf(models, languages) {
  const names = new Map(languages.map(({ code, name }) => [code, name]));
  for (const { source, target, source_name, target_name } of models) {
    if (!names.has(source)) names.set(source, source_name || source);
    if (!names.has(target)) names.set(target, target_name || target);
  }
  return names;
}

/**
 * Return languages as choices, each once.
 * @param {string[]} codes
 * @param {Map<string, string>} names
 * @returns {Named[]}
 */
function named(codes, names) {
  return [...new Set(codes)].map((code) => ({ value: code, label: names.get(code) ?? code }));
}
