/* The likeliest tokens of each row of logits, with their log-probabilities, in two passes over the row. */

#include <math.h>

#include "choices.h"

#define TOGETHER 8 /* vectors whose maximum is looked at before any of them is */

/* Put a value and its place among the best so far, which are in order; of equal ones the first stays in front. */
static void rank(float *best, int64_t *places, int64_t count, float value, int64_t place) {
    int64_t at = count - 1;
    for (; at > 0 && value > best[at - 1]; at--) {
        best[at] = best[at - 1];
        places[at] = places[at - 1];
    }
    best[at] = value;
    places[at] = place;
}

/* For each of `rows` rows of `width` logits: the `count` likeliest places, but none below `first_allowed` except 1
   (the unknown), with their log-probabilities among all. What is forbidden still counts as possible. */
void choose_best(const float *logits, int64_t rows, int64_t width, int64_t count, int64_t first_allowed, float *best,
                 int64_t *places) {
    for (int64_t r = 0; r < rows; r++, logits += width, best += count, places += count) {
        for (int64_t i = 0; i < count; i++) {
            best[i] = -INFINITY;
            places[i] = 1;
        }
        float top = -INFINITY;
        for (int64_t start = 0; start < width; start += TOGETHER * LANES) {
            int64_t end = start + TOGETHER * LANES;
            if (end <= width && start) {
                floats tops = load(logits + start);
                for (int i = 1; i < TOGETHER; i++) tops = larger(load(logits + start + i * LANES), tops);
                float most = highest(tops);
                top = most > top ? most : top;
                if (!(most > best[count - 1])) continue;
            }
            for (int64_t place = start; place < (end < width ? end : width); place++) {
                top = logits[place] > top ? logits[place] : top;
                if (logits[place] > best[count - 1] && (place >= first_allowed || place == 1))
                    rank(best, places, count, logits[place], place);
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
