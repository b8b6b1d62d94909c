// Splits a text and its translation into pairs of sentences, for alternatives and for the inspection of attention.

/** @typedef {{ source: string, target: string, start: number, end: number }} Segment start and end in the translation */
/** @typedef {{ text: string, start: number, end: number, isWord: boolean }} TextSpan */
/** @typedef {{ source: string, target: string, never_split: boolean, is_language_model: boolean }} SegmentedModel */

/**
 * Return the segments of a translation: lines correspond; sentences do if both lines have the same number of them.
 * @param {string} source
 * @param {string} target
 * @param {SegmentedModel} model
 * @returns {Segment[]}
 */
export function splitSegments(source, target, model) {
  if (model.is_language_model) return [createSegment(source, target)].filter((segment) => segment.source.trim());
  const sourceLines = splitLines(source);
  const targetLines = splitLines(target);
  if (sourceLines.length !== targetLines.length) return [createSegment(source, target)];
  const segments = targetLines.flatMap((line, index) => splitLine(sourceLines[index]?.text ?? "", line, model));
  return segments.filter((segment) => segment.source.trim() && segment.target.trim());
}

/**
 * @param {string} source
 * @param {{ text: string, start: number }} target
 * @param {SegmentedModel} model
 * @returns {Segment[]}
 */
function splitLine(source, target, model) {
  const line = createSegment(source.trim(), target.text, target.start);
  if (model.never_split) return [line];
  const sourceSentences = splitSpans(source, model.source, "sentence").map(({ text }) => text.trim());
  const targetSentences = splitSpans(target.text, model.target, "sentence");
  if (sourceSentences.length !== targetSentences.length) return [line];
  return targetSentences.map(({ text, start }, index) =>
    createSegment(sourceSentences[index] ?? "", text.trimEnd(), target.start + start),
  );
}

/**
 * @param {string} source
 * @param {string} target
 * @returns {Segment}
 */
function createSegment(source, target, start = 0) {
  return { source, target, start, end: start + target.length };
}

/** @param {string} text */
function splitLines(text) {
  let start = 0;
  return text.split("\n").map((line) => {
    const span = { text: line, start };
    start += line.length + 1;
    return span;
  });
}

/**
 * Split a text into words and what is between them.
 * @param {string} text
 * @param {string} language
 */
export const splitWords = (text, language) => splitSpans(text, language, "word");

/**
 * Split a text by the rules of its language; for an unknown language, by those of the browser's.
 * @param {string} text
 * @param {string} language
 * @param {"word" | "sentence"} granularity
 * @returns {TextSpan[]}
 */
function splitSpans(text, language, granularity) {
  return [...createSegmenter(language, granularity).segment(text)].map(({ segment, index, isWordLike }) => ({
    text: segment,
    start: index,
    end: index + segment.length,
    isWord: Boolean(isWordLike),
  }));
}

/**
 * @param {string} language
 * @param {"word" | "sentence"} granularity
 */
function createSegmenter(language, granularity) {
  try {
    return new Intl.Segmenter(language, { granularity });
  } catch {
    return new Intl.Segmenter(undefined, { granularity }); // the code of a model's language can be any string
  }
}
