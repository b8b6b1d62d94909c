// The choice of a model: by its languages and, if several models have the same ones or none, by its name.

import { fillSelect, find } from "../../viewer/static/dom.js";

/**
 * @typedef {import("./api.js").Model} Model
 * @typedef {import("./api.js").Language} Language
 * @typedef {{ value: string, label: string }} Option
 * @typedef {{ chosen: Model, sources: Option[], comparableModels: () => Model[],
 *   chooseSource: (source: string) => void, swap: () => void }} ModelChooser
 */

/**
 * Fill the lists of languages and models, and call `onChange` when another model is chosen.
 * @param {Model[]} models
 * @param {Language[]} languages
 * @param {string | null} initialName name of the model to begin with; otherwise the first
 * @param {() => void} onChange
 * @returns {ModelChooser}
 */
export function createModelChooser(models, languages, initialName, onChange) {
  const from = find("from", HTMLSelectElement);
  const to = find("to", HTMLSelectElement);
  const model = find("model", HTMLSelectElement);
  const first = models.find(({ name }) => name === initialName) ?? models[0];
  if (!first) throw new Error("the server has no model");
  const translators = models.filter((model) => model.has_language_pair);
  const names = languageNames(translators, languages);

  const chooser = {
    chosen: first,
    sources: languageOptions(
      translators.map((model) => model.source),
      names,
    ),
    comparableModels: () =>
      models.filter(
        ({ name, source, noun }) => name !== chooser.chosen.name && source === chooser.chosen.source && noun === chooser.chosen.noun,
      ),
    /** @param {string} source */
    chooseSource: (source) =>
      choose(modelsBetween(translators, source, chooser.chosen.target)[0] ?? translators.find((each) => each.source === source)),
    swap: () => choose(modelsBetween(translators, chooser.chosen.target, chooser.chosen.source)[0]),
  };

  /** @param {Model | undefined} wanted */
  const choose = (wanted) => {
    if (!wanted) return;
    chooser.chosen = wanted;
    const { source, target, name } = wanted;
    const same = translators.length < models.length ? models : modelsBetween(translators, source, target);
    const targets = translators.filter((each) => each.source === source).map((each) => each.target);
    fillChoice(from, chooser.sources, source);
    fillChoice(to, languageOptions(targets, names), target);
    fillChoice(
      model,
      same.map((each) => ({ value: each.name, label: each.name })),
      name,
    );
    find("model-choice", HTMLElement).hidden = same.length < 2;
    for (const id of ["from-choice", "to-choice"]) find(id, HTMLElement).hidden = !wanted.has_language_pair;
    find("swap", HTMLElement).hidden = !modelsBetween(translators, target, source).length;
    onChange();
  };

  from.onchange = () => chooser.chooseSource(from.value);
  to.onchange = () => choose(modelsBetween(translators, chooser.chosen.source, to.value)[0]);
  model.onchange = () => choose(models.find(({ name }) => name === model.value));
  choose(first);
  return chooser;
}

/**
 * Fill a list with options; disable it if there is only one.
 * @param {HTMLSelectElement} list
 * @param {Option[]} options
 * @param {string} value
 */
function fillChoice(list, options, value) {
  fillSelect(list, options, value);
  list.disabled = options.length < 2;
}

/**
 * Return the models that translate from one language into another.
 * @param {Model[]} models
 * @param {string} source
 * @param {string} target
 */
function modelsBetween(models, source, target) {
  return models.filter((each) => each.source === source && each.target === target);
}

/**
 * Return the name of each language by its code.
 * @param {Model[]} models
 * @param {Language[]} languages
 * @returns {Map<string, string>}
 */
function languageNames(models, languages) {
  const names = new Map(languages.map(({ code, name }) => [code, name]));
  for (const { source, target, source_name, target_name } of models) {
    if (!names.has(source)) names.set(source, source_name || source);
    if (!names.has(target)) names.set(target, target_name || target);
  }
  return names;
}

/**
 * Return languages as options of a list, without duplicates.
 * @param {string[]} codes
 * @param {Map<string, string>} names
 * @returns {Option[]}
 */
function languageOptions(codes, names) {
  return [...new Set(codes)].map((code) => ({ value: code, label: names.get(code) ?? code }));
}
