/* Self-attention for one more position of W hypotheses of B sentences: write its key and value, attend to the prefix.

   The caches are B C L H K: room for C hypotheses of L positions. Hypotheses that come from the same one share its
   positions, so nothing is copied when a beam is reordered: `ancestors` (B W T) says at which of the C places of its
   sentence a hypothesis finds position t. */

#include <math.h>
#include <stdlib.h>

#include "attention.h"

/* joint is BW × 3HK: query, key and value of the new position; out is BW × HK. K is a multiple of 16. */
int attend_cached(const Caches *caches, const float *joint, float *keys, float *values, const int32_t *ancestors,
                    float *out) {
    const int64_t W = caches->beam, T = caches->length, K = caches->width, all_heads = caches->heads * K;
    const int64_t hypothesis = caches->capacity * all_heads, blocks = (T + GROUP - 1) / GROUP * GROUP;
    const float scale = 1.0f / sqrtf((float)K);
    float *scores = aligned_alloc(64, sizeof(float) * (size_t)blocks);
    if (!scores) return 1;
    for (int64_t b = 0; b < caches->batch; b++) {
        float *key = keys + b * caches->slots * hypothesis, *value = values + b * caches->slots * hypothesis;
        for (int64_t w = 0; w < W; w++) {
            const float *new = joint + (b * W + w) * 3 * all_heads + all_heads;
            memcpy(key + w * hypothesis + (T - 1) * all_heads, new, sizeof(float) * (size_t)all_heads);
            memcpy(value + w * hypothesis + (T - 1) * all_heads, new + all_heads, sizeof(float) * (size_t)all_heads);
        }
        for (int64_t w = 0; w < W; w++) {
            const int32_t *slot = ancestors + (b * W + w) * T;
            for (int64_t h = 0; h < caches->heads; h++) {
                const float *query = joint + (b * W + w) * 3 * all_heads + h * K;
                floats tops = all(-INFINITY), sums = {0};
                for (int64_t start = 0; start < blocks; start += LANES) {
                    floats parts[LANES];
                    for (int i = 0; i < LANES; i++) {
                        parts[i] = all(start + i < T ? 0.0f : -INFINITY);
                        if (start + i >= T) continue;
                        const float *row = key + slot[start + i] * hypothesis + (start + i) * all_heads + h * K;
                        for (int64_t c = 0; c < K; c += LANES) parts[i] += load(row + c) * load(query + c);
                    }
                    transpose_block(parts);
                    floats total = parts[0];
                    for (int i = 1; i < LANES; i++) total += parts[i];
                    store(scores + start, total * scale);
                    tops = larger(total * scale, tops);
                }
                float top = highest(tops);
                for (int64_t start = 0; start < blocks; start += LANES) {
                    floats raised = exponential(load(scores + start) - top);
                    store(scores + start, raised);
                    sums += raised;
                }
                float share = 1 / sum(sums);
                for (int64_t c = 0; c < K; c += LANES) {
                    floats attended = {0};
                    for (int64_t t = 0; t < T; t++)
                        attended += load(value + slot[t] * hypothesis + t * all_heads + h * K + c) * scores[t];
                    store(out + (b * W + w) * all_heads + h * K + c, attended * share);
                }
            }
        }
    }
    free(scores);
    return 0;
}
