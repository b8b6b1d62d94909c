// Elements. Every string goes onto the page as text, never as HTML.

/**
 * Make an element with properties and children; strings become text.
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
 * Make a button.
 * @param {string} text
 * @param {() => void} onclick
 * @param {string} [className]
 */
export const button = (text, onclick, className = "dv-button") =>
  make("button", { type: "button", className, onclick }, text);

/**
 * Return a piece as it is written, with a pale mark where it begins a word.
 * @param {string} piece
 * @param {"bdi" | "span"} [tag] a span where the sentence around it shall take its direction from it
 */
export function written(piece, tag = "bdi") {
  const rest = piece.replace(/^[▁ ]+/, "");
  const marks = piece.length - rest.length;
  return make(tag, {}, ...(marks ? [make("span", { className: "dv-mark" }, "▁".repeat(marks))] : []), rest);
}

/** @param {string} piece */
export const plain = (piece) => piece.replace(/^ /, "▁");

let counter = 0;

/**
 * Make a row of choices of which one holds.
 * @template {string} Value
 * @param {string} label
 * @param {[Value, string][]} options
 * @param {Value} value
 * @param {(value: Value) => void} choose
 */
export function choice(label, options, value, choose) {
  const name = `dv-choice-${counter++}`;
  const inputs = options.map(([option, text]) => {
    const input = make("input", { type: "radio", name, value: option, checked: option === value });
    input.onchange = () => choose(option);
    return { option, input, element: make("label", {}, input, make("span", {}, text)) };
  });
  const legend = make("legend", { className: "dv-quiet" }, label);
  const element = make("fieldset", { className: "dv-choice" }, legend, ...inputs.map((each) => each.element));
  /** @param {Value} now */
  const update = (now) => inputs.forEach(({ option, input }) => (input.checked = option === now));
  return { element, update };
}

/**
 * Let arrow keys walk over items that stand in rows of a width; Tab enters and leaves them as one.
 * @param {HTMLElement} container
 * @param {HTMLElement[]} items
 * @param {number} width
 */
export function rove(container, items, width) {
  items.forEach((item, i) => (item.tabIndex = i ? -1 : 0));
  container.onkeydown = (event) => {
    const forward = getComputedStyle(container).direction === "rtl" ? -1 : 1;
    /** @type {Record<string, number>} */
    const steps = { ArrowRight: forward, ArrowLeft: -forward, ArrowDown: width, ArrowUp: -width };
    const now = items.findIndex((item) => item === document.activeElement);
    const next = items[now + (steps[event.key] ?? NaN)];
    if (now < 0 || !next) return;
    event.preventDefault();
    items.forEach((item) => (item.tabIndex = item === next ? 0 : -1));
    next.focus();
  };
}

/**
 * Make a note that appears where the table of a panel does.
 * @param {string} summary
 * @param {() => Node} content made when it is opened
 */
export function unfolding(summary, content) {
  const box = make("div", { className: "dv-scroll" });
  const element = make("details", { className: "dv-details" }, make("summary", {}, summary), box);
  const draw = () => box.replaceChildren(...(element.open ? [content()] : []));
  element.ontoggle = draw;
  return { element, draw };
}

/**
 * Make a table of strings with headings at the top and at the left.
 * @param {string} caption
 * @param {string[]} across
 * @param {[string, ...string[]][]} rows
 */
export function tableOf(caption, across, rows) {
  const heading = (/** @type {string} */ text, /** @type {string} */ scope) => make("th", { scope }, written(text));
  const head = make("tr", {}, make("td"), ...across.map((text) => heading(text, "col")));
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
