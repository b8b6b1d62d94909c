// What changed between two translations, word by word.

/**
 * Return which words two lists have in common, in order: the longest such list, as pairs of places.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {[number, number][]}
 */
export function common(before, after) {
  const width = after.length + 1;
  const longest = new Uint16Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      longest[i * width + j] =
        before[i] === after[j]
          ? 1 + (longest[(i + 1) * width + j + 1] ?? 0)
          : Math.max(longest[(i + 1) * width + j] ?? 0, longest[i * width + j + 1] ?? 0);
    }
  }
  /** @type {[number, number][]} */
  const pairs = [];
  for (let i = 0, j = 0; i < before.length && j < after.length;) {
    if (before[i] === after[j]) pairs.push([i++, j++]);
    else if ((longest[(i + 1) * width + j] ?? 0) >= (longest[i * width + j + 1] ?? 0)) i++;
    else j++;
  }
  return pairs;
}

/**
 * Return the places of the words that went and of those that came.
 * @param {string[]} before
 * @param {string[]} after
 */
export function difference(before, after) {
  const kept = common(before, after);
  const [old, now] = [new Set(kept.map(([i]) => i)), new Set(kept.map(([, j]) => j))];
  return {
    gone: before.map((_, i) => i).filter((i) => !old.has(i)),
    come: after.map((_, j) => j).filter((j) => !now.has(j)),
  };
}
