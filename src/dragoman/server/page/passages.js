// A text and its translation, sentence beside sentence: the parts that alternatives are asked for and looked inside.

/** @typedef {{ source: string, target: string, start: number, end: number }} Passage where in the translation */
/** @typedef {{ text: string, start: number, end: number, word: boolean }} Piece */

/**
 * Return the passages of a translation. Lines belong together; sentences do where both lines have the same number.
 * @param {string} source
 * @param {string} target
 * @param {{ source: string, target: string, never_split: boolean, is_language_model: boolean }} languages of the model
 * @returns {Passage[]}
 */
export function passages(source, target, languages) {
  if (languages.is_language_model) return [whole(source, target)].filter((passage) => passage.source.trim());
  const ours = lines(source);
  const theirs = lines(target);
  if (ours.length !== theirs.length) return [whole(source, target)];
  const found = theirs.flatMap((line, row) => inLine(ours[row]?.text ?? "", line, languages));
  return found.filter((passage) => passage.source.trim() && passage.target.trim());
}

/**
 * @param {string} source
 * @param {{ text: string, start: number }} target
 * @param {{ source: string, target: string, never_split: boolean }} languages
 * @returns {Passage[]}
 */
function inLine(source, target, languages) {
  if (languages.never_split) return [whole(source.trim(), target.text, target.start)];
  const ours = segments(source, languages.source, "sentence").map(({ text }) => text.trim());
  const theirs = segments(target.text, languages.target, "sentence");
  if (ours.length !== theirs.length) return [whole(source.trim(), target.text, target.start)];
  return theirs.map(({ text, start }, row) => whole(ours[row] ?? "", text.trimEnd(), target.start + start));
}

/**
 * @param {string} source
 * @param {string} target
 * @returns {Passage}
 */
function whole(source, target, start = 0) {
  return { source, target, start, end: start + target.length };
}

/**
 * Return the lines of a text with their places.
 * @param {string} text
 */
function lines(text) {
  let start = 0;
  return text.split("\n").map((line) => {
    const found = { text: line, start };
    start += line.length + 1;
    return found;
  });
}

/**
 * Cut a text into words and what stands between them.
 * @param {string} text
 * @param {string} language
 */
export const words = (text, language) => segments(text, language, "word");

/**
 * Cut a text by the rules of its language; those of any language where we do not know them.
 * @param {string} text
 * @param {string} language
 * @param {"word" | "sentence"} granularity
 * @returns {Piece[]}
 */
function segments(text, language, granularity) {
  const found = [...segmenter(language, granularity).segment(text)];
  return found.map(({ segment, index, isWordLike }) => ({
    text: segment,
    start: index,
    end: index + segment.length,
    word: Boolean(isWordLike),
  }));
}

/**
 * @param {string} language
 * @param {"word" | "sentence"} granularity
 */
function segmenter(language, granularity) {
  try {
    return new Intl.Segmenter(language, { granularity });
  } catch {
    return new Intl.Segmenter(undefined, { granularity }); // a model may call its languages anything
  }
}
