/* The most probable tokens of each row of logits, with their log-probabilities, in two passes over the row. */

#include <math.h>

#include "choices.h"

#define UNROLL 8 /* vectors that are skipped at once if their maximum is too low */

/* Insert a value and its index into the sorted best values; of equal values the first stays first. */
static void insert(float *best, int64_t *indices, int64_t count, float value, int64_t index) {
    int64_t at = count - 1;
    for (; at > 0 && value > best[at - 1]; at--) {
        best[at] = best[at - 1];
        indices[at] = indices[at - 1];
    }
    best[at] = value;
    indices[at] = index;
}

/* For each of `rows` rows of `width` logits: the `count` highest indices, but none below `first_allowed` except 1
   (the unknown), with their log-probabilities among all. What is forbidden still counts as possible. */
void top_tokens(const float *logits, int64_t rows, int64_t width, int64_t count, int64_t first_allowed, float *best,
                 int64_t *indices) {
    for (int64_t r = 0; r < rows; r++, logits += width, best += count, indices += count) {
        for (int64_t i = 0; i < count; i++) {
            best[i] = -INFINITY;
            indices[i] = 1;
        }
        float top = -INFINITY;
        for (int64_t start = 0; start < width; start += UNROLL * LANES) {
            int64_t end = start + UNROLL * LANES;
            if (end <= width && start) {
                floats tops = load(logits + start);
                for (int i = 1; i < UNROLL; i++) tops = larger(load(logits + start + i * LANES), tops);
                float most = highest(tops);
                top = most > top ? most : top;
                if (!(most > best[count - 1])) continue;
            }
            for (int64_t index = start; index < (end < width ? end : width); index++) {
                top = logits[index] > top ? logits[index] : top;
                if (logits[index] > best[count - 1] && (index >= first_allowed || index == 1))
                    insert(best, indices, count, logits[index], index);
            }
        }
        floats sums = {0};
        int64_t whole = width / LANES * LANES;
        for (int64_t c = 0; c < whole; c += LANES) sums += exponential(load(logits + c) - top);
        float total = sum(sums);
        for (int64_t c = whole; c < width; c++) total += expf(logits[c] - top);
        float log_total = logf(total) + top;
        for (int64_t i = 0; i < count; i++) best[i] -= log_total;
    }
}
