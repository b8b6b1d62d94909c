// DOM helpers of the viewer, the served page and the live page. Strings are inserted as text, never as HTML.

/**
 * Return the element with this id; throw if the page has none of this class.
 * @template {Element} E
 * @param {string} id
 * @param {new (...args: any[]) => E} kind
 * @returns {E}
 */
export function find(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return element;
}

/**
 * Create an element with properties and children; strings become text nodes.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Partial<HTMLElementTagNameMap[Tag]>} [properties]
 * @param {(Node | string)[]} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/**
 * Create an SVG element with attributes.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number>} [attributes]
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svgElement(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/**
 * Fill a select element unless it has these options already; keep the present value if it still exists.
 * @param {HTMLSelectElement} select
 * @param {{ value: string, label: string }[]} options
 * @param {string} [value] the option to select
 */
export function fillSelect(select, options, value = select.value) {
  const isSame =
    options.length === select.options.length &&
    options.every(({ value, label }, i) => select.options[i]?.value === value && select.options[i]?.text === label);
  if (!isSame) select.replaceChildren(...options.map(({ value, label }) => make("option", { value }, label)));
  if (options.some((option) => option.value === value)) select.value = value;
}

/**
 * Create a button.
 * @param {string} text
 * @param {() => void} onclick
 * @param {string} [className]
 */
export const button = (text, onclick, className = "dv-button") =>
  make("button", { type: "button", className, onclick }, text);

/**
 * Return an element with the text of a piece; a pale mark shows the beginning of a word.
 * @param {string} piece
 * @param {"bdi" | "span"} [tag] a span lets the surrounding sentence take its direction from the piece
 */
export function pieceElement(piece, tag = "bdi") {
  const rest = piece.replace(/^[▁ ]+/, "");
  const marks = piece.length - rest.length;
  return make(tag, {}, ...(marks ? [make("span", { className: "dv-mark" }, "▁".repeat(marks))] : []), rest);
}

/** @param {string} piece */
export const visiblePiece = (piece) => piece.replace(/^ /, "▁");

let counter = 0;

/**
 * Create a group of radio buttons.
 * @template {string} Value
 * @param {string} label
 * @param {[Value, string][]} options
 * @param {Value} value
 * @param {(value: Value) => void} onChange
 */
export function radioGroup(label, options, value, onChange) {
  const name = `dv-choice-${counter++}`;
  const inputs = options.map(([option, text]) => {
    const input = make("input", { type: "radio", name, value: option, checked: option === value });
    input.onchange = () => onChange(option);
    return { option, input, element: make("label", {}, input, make("span", {}, text)) };
  });
  const legend = make("legend", { className: "dv-quiet" }, label);
  const element = make("fieldset", { className: "dv-choice" }, legend, ...inputs.map((each) => each.element));
  /** @param {Value} now */
  const update = (now) => inputs.forEach(({ option, input }) => (input.checked = option === now));
  return { element, update };
}

/**
 * Move the focus between items with the arrow keys, Home and End; Tab enters and leaves the group.
 * The items are laid out in rows of `width`.
 * @param {HTMLElement} container
 * @param {HTMLElement[]} items
 * @param {number} [width]
 */
export function roveFocus(container, items, width = 1) {
  items.forEach((item, i) => (item.tabIndex = i ? -1 : 0));
  container.onkeydown = (event) => {
    const forward = getComputedStyle(container).direction === "rtl" ? -1 : 1;
    /** @type {Record<string, number>} */
    const steps = { ArrowRight: forward, ArrowLeft: -forward, ArrowDown: width, ArrowUp: -width };
    const now = items.findIndex((item) => item === document.activeElement);
    const ends = { Home: 0, End: items.length - 1 };
    const next = items[ends[/** @type {"Home" | "End"} */ (event.key)] ?? now + (steps[event.key] ?? NaN)];
    if (now < 0 || !next) return;
    event.preventDefault();
    items.forEach((item) => (item.tabIndex = item === next ? 0 : -1));
    next.focus();
  };
}

/**
 * Create a details element whose content is made when it is opened.
 * @param {string} summary
 * @param {() => Node} content
 */
export function makeDetails(summary, content) {
  const box = make("div", { className: "dv-scroll" });
  const element = make("details", { className: "dv-details" }, make("summary", {}, summary), box);
  const draw = () => box.replaceChildren(...(element.open ? [content()] : []));
  element.ontoggle = draw;
  return { element, draw };
}

/**
 * Create a table of strings with column and row headings.
 * @param {string} caption
 * @param {string[]} headings
 * @param {[string, ...string[]][]} rows
 */
export function makeTable(caption, headings, rows) {
  const heading = (/** @type {string} */ text, /** @type {string} */ scope) => make("th", { scope }, pieceElement(text));
  const head = make("tr", {}, make("td"), ...headings.map((text) => heading(text, "col")));
  const body = rows.map(([name, ...cells]) =>
    make("tr", {}, heading(name, "row"), ...cells.map((cell) => make("td", {}, cell))),
  );
  return make(
    "table",
    { className: "dv-table" },
    make("caption", { className: "dv-quiet" }, caption),
    make("thead", {}, head),
    make("tbody", {}, ...body),
  );
}
