/* Smoothed cross-entropy (section 5.4) of rows of logits, which are replaced by the gradient of the loss. */

#include <math.h>

#include "vectors.h"

/* Add the loss with and without smoothing of `rows` rows of `width` logits to losses[0] and losses[1]. Each row then
   holds its probabilities minus its smoothed target: what the loss changes by when a logit does. */
void cross_entropy(float *logits, const int64_t *target, int64_t rows, int64_t width, float smoothing, double *losses) {
    const int64_t whole = width / LANES * LANES;
    for (int64_t r = 0; r < rows; r++) {
        float *row = logits + r * width;
        float hit = row[target[r]];
        floats tops = all(-INFINITY), means = {0}, sums = {0};
        for (int64_t c = 0; c < whole; c += LANES) {
            floats value = load(row + c);
            tops = larger(value, tops);
            means += value;
        }
        float top = highest(tops), mean = sum(means), total = 0;
        for (int64_t c = whole; c < width; c++) {
            top = row[c] > top ? row[c] : top;
            mean += row[c];
        }
        mean /= (float)width;
        for (int64_t c = 0; c < whole; c += LANES) {
            floats raised = exponential(load(row + c) - top);
            store(row + c, raised);
            sums += raised;
        }
        for (int64_t c = whole; c < width; c++) total += row[c] = expf(row[c] - top);
        total += sum(sums);
        float share = 1 / total, spread = smoothing / (float)width, log_total = logf(total) + top;
        for (int64_t c = 0; c < whole; c += LANES) store(row + c, load(row + c) * share - spread);
        for (int64_t c = whole; c < width; c++) row[c] = row[c] * share - spread;
        row[target[r]] -= 1 - smoothing;
        losses[0] += log_total - (1 - smoothing) * hit - smoothing * mean;
        losses[1] += log_total - hit;
    }
}
