// DOM helpers. Strings become text, never HTML.

/**
 * Return the element with this id; index.html must have it.
 * @template {HTMLElement} E
 * @param {string} id
 * @param {new () => E} kind
 * @returns {E}
 */
export function find(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`index.html has no ${kind.name} with the id ${id}`);
  return element;
}

/**
 * Create an element with properties and children.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Partial<HTMLElementTagNameMap[T]>} [properties]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/**
 * Fill a list with options; disable it if there is only one.
 * @param {HTMLSelectElement} list
 * @param {{ value: string, label: string }[]} options
 * @param {string} chosen
 */
export function fillSelect(list, options, chosen) {
  list.replaceChildren(
    ...options.map(({ value, label }) => make("option", { value, selected: value === chosen }, label)),
  );
  list.disabled = options.length < 2;
}

/**
 * Move the focus between items by arrow keys; Tab enters and leaves the group as a whole.
 * @param {HTMLElement} container
 * @param {HTMLElement[]} items
 */
export function roveFocus(container, items) {
  items.forEach((item, index) => {
    item.tabIndex = index ? -1 : 0;
  });
  container.onkeydown = (event) => {
    const current = items.findIndex((item) => item === document.activeElement);
    const next = items[targetIndex(event.key, current, items.length, getComputedStyle(container).direction === "rtl")];
    if (current < 0 || !next) return;
    event.preventDefault();
    for (const item of items) item.tabIndex = item === next ? 0 : -1;
    next.focus();
  };
}

/**
 * Return the index to which a key moves the focus; -1 if it does not.
 * @param {string} key
 * @param {number} current
 * @param {number} length
 * @param {boolean} isRtl
 */
function targetIndex(key, current, length, isRtl) {
  const forward = isRtl ? "ArrowLeft" : "ArrowRight";
  const back = isRtl ? "ArrowRight" : "ArrowLeft";
  if (key === "Home") return 0;
  if (key === "End") return length - 1;
  if (key === forward || key === "ArrowDown") return current + 1;
  if (key === back || key === "ArrowUp") return current - 1;
  return -1;
}
