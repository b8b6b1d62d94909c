// The elements of the page. Strings become text, never HTML.

/**
 * Return the element with this id, which index.html is known to have.
 * @template {HTMLElement} E
 * @param {string} id
 * @param {new () => E} kind
 * @returns {E}
 */
export function find(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`index.html has no ${kind.name} called ${id}`);
  return element;
}

/**
 * Make an element with these properties and children.
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
 * Fill a list of choices; where there is but one, it is only read.
 * @param {HTMLSelectElement} list
 * @param {{ value: string, label: string }[]} choices
 * @param {string} chosen
 */
export function offer(list, choices, chosen) {
  list.replaceChildren(
    ...choices.map(({ value, label }) => make("option", { value, selected: value === chosen }, label)),
  );
  list.disabled = choices.length < 2;
}

/**
 * Let arrow keys walk over items in a line; Tab enters and leaves them as one.
 * @param {HTMLElement} container
 * @param {HTMLElement[]} items
 */
export function rove(container, items) {
  items.forEach((item, place) => {
    item.tabIndex = place ? -1 : 0;
  });
  container.onkeydown = (event) => {
    const now = items.findIndex((item) => item === document.activeElement);
    const next = items[destination(event.key, now, items.length, getComputedStyle(container).direction === "rtl")];
    if (now < 0 || !next) return;
    event.preventDefault();
    for (const item of items) item.tabIndex = item === next ? 0 : -1;
    next.focus();
  };
}

/**
 * Return where a key leads to; -1 if nowhere.
 * @param {string} key
 * @param {number} now
 * @param {number} length
 * @param {boolean} leftwards
 */
function destination(key, now, length, leftwards) {
  const forward = leftwards ? "ArrowLeft" : "ArrowRight";
  const back = leftwards ? "ArrowRight" : "ArrowLeft";
  if (key === "Home") return 0;
  if (key === "End") return length - 1;
  if (key === forward || key === "ArrowDown") return now + 1;
  if (key === back || key === "ArrowUp") return now - 1;
  return -1;
}
