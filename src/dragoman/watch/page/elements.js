// The few things that every part of the page does to its elements. All text goes through textContent.

/**
 * Return the element of the page with this id.
 * @template {Element} T
 * @param {string} id
 * @param {new (...args: any[]) => T} kind
 * @returns {T}
 */
export function find(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return found;
}

/**
 * Make an element with a class, a text and children.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {string} [style]
 * @param {string | null} [text]
 * @param {...Node} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(name, style = "", text = null, ...children) {
  const made = document.createElement(name);
  if (style) made.className = style;
  if (text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

/**
 * Make an element of a drawing.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} name
 * @param {Record<string, string | number>} [attributes]
 * @returns {SVGElementTagNameMap[K]}
 */
export function draw(name, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}

/**
 * Fill a list of names and values.
 * @param {HTMLElement} list
 * @param {[name: string, value: string][]} rows
 */
export function fillList(list, rows) {
  list.replaceChildren(...rows.map(([name, value]) => make("div", "", null, make("dt", "", name), make("dd", "", value))));
}

/**
 * Put options into a choice, if they are not there already, and keep what is chosen where it still exists.
 * @param {HTMLSelectElement} choice
 * @param {[value: string, label: string][]} options
 */
export function fillChoice(choice, options) {
  const same = options.length === choice.options.length &&
    options.every(([value, label], i) => choice.options[i]?.value === value && choice.options[i]?.textContent === label);
  if (same) return;
  const before = choice.value;
  choice.replaceChildren(...options.map(([value, label]) => Object.assign(make("option", "", label), {value})));
  if (options.some(([value]) => value === before)) choice.value = before;
}
