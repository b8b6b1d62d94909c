/* Equation 1 and its gradient for short sequences, where the work of one head fits into a core's cache.

   q is B T H K; k and v are B S H K, each with strides of its own (in floats), so that a head need not be copied out
   of a joint projection. A mask is one byte a position, not zero where query_length is allowed; a row that may look
   nowhere gives zeros. K is a multiple of 16. Everything here runs in the caller's thread. */

#include <math.h>
#include <stdlib.h>

#include "attention.h"

#define ROWS 4 /* rows of a product that are computed together, so that each loaded vector is used as often */

/* out (rows × width) = a (rows × depth) · b (depth × width), a by two strides so that it may be transposed.
   width is a multiple of 16. */
static inline void product(float *out, int64_t out_stride, const float *a, int64_t a_row, int64_t a_column,
                           const float *b, int64_t b_stride, int64_t rows, int64_t depth, int64_t width) {
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS) {
        const float *from = a + r * a_row;
        int64_t c = 0;
        for (; c + 2 * LANES <= width; c += 2 * LANES) {
            floats left[ROWS] = {0}, right[ROWS] = {0};
            for (int64_t d = 0; d < depth; d++) {
                floats first = load(b + d * b_stride + c), second = load(b + d * b_stride + c + LANES);
                for (int i = 0; i < ROWS; i++) {
                    float factor = from[i * a_row + d * a_column];
                    left[i] += first * factor;
                    right[i] += second * factor;
                }
            }
            for (int i = 0; i < ROWS; i++) {
                store(out + (r + i) * out_stride + c, left[i]);
                store(out + (r + i) * out_stride + c + LANES, right[i]);
            }
        }
        for (; c < width; c += LANES) {
            floats total[ROWS] = {0};
            for (int64_t d = 0; d < depth; d++) {
                floats first = load(b + d * b_stride + c);
                for (int i = 0; i < ROWS; i++) total[i] += first * from[i * a_row + d * a_column];
            }
            for (int i = 0; i < ROWS; i++) store(out + (r + i) * out_stride + c, total[i]);
        }
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < width; c += LANES) {
            floats total = {0};
            for (int64_t d = 0; d < depth; d++) total += load(b + d * b_stride + c) * a[r * a_row + d * a_column];
            store(out + r * out_stride + c, total);
        }
}

/* to (width × columns) = from (rows × width) transposed, times a factor; columns beyond rows become zero. */
static void transpose(float *to, int64_t columns, const float *from, int64_t stride, int64_t rows, int64_t width,
                      float factor) {
    for (int64_t r = 0; r < columns; r += LANES)
        for (int64_t w = 0; w < width; w += LANES) {
            floats block[LANES];
            for (int i = 0; i < LANES; i++) block[i] = r + i < rows ? load(from + (r + i) * stride + w) * factor : all(0);
            transpose_block(block);
            for (int i = 0; i < LANES; i++) store(to + (w + i) * columns + r, block[i]);
        }
}

/* One row (or T rows) of 1 and 0 from the mask's bytes; positions beyond S are masked. */
static void allowances(float *allowed, int64_t columns, const uint8_t *mask, int64_t stride, int64_t rows,
                       int64_t key_length) {
    for (int64_t t = 0; t < rows; t++)
        for (int64_t s = 0; s < columns; s++)
            allowed[t * columns + s] = s < key_length && (!mask || mask[t * stride + s]) ? 1.0f : 0.0f;
}

int64_t padded(int64_t length) { return (length + GROUP - 1) / GROUP * GROUP; }

/* Softmax in place over rows of scores; write the log-sums. */
static void weigh(float *weights, int64_t rows, int64_t columns, const float *allowed, int64_t mask_rows,
                  float *log_sums) {
    for (int64_t t = 0; t < rows; t++) {
        float *row = weights + t * columns;
        const float *may = allowed + (mask_rows == 1 ? 0 : t * columns);
        floats top = all(-3.0e38f), total = {0};
        for (int64_t s = 0; s < columns; s += LANES)
            top = larger(choose(load(may + s) > all(0), load(row + s), all(-3.0e38f)), top);
        float most = highest(top);
        for (int64_t s = 0; s < columns; s += LANES) {
            floats raised = choose(load(may + s) > all(0), exponential(load(row + s) - most), all(0));
            store(row + s, raised);
            total += raised;
        }
        float whole = sum(total), share = whole > 0 ? 1 / whole : whole; /* NaN stays NaN */
        for (int64_t s = 0; s < columns; s += LANES) store(row + s, load(row + s) * share);
        if (log_sums) log_sums[t] = whole > 0 ? most + logf(whole) : whole;
    }
}

void transpose_keys(float *transposed, const float *keys, int64_t stride, int64_t key_length, int64_t width) {
    transpose(transposed, padded(key_length), keys, stride, key_length, width, 1.0f / sqrtf((float)width));
}

/* transposed: the keys are B H K P, as `transpose_keys` writes them; P is S rounded up to whole vectors. */
static int attend(const Shape *shape, const float *query, const float *key, const float *value, const uint8_t *mask,
                  float *out, float *log_sums, int transposed) {
    const int64_t T = shape->query_length, S = shape->key_length, H = shape->heads, K = shape->width, P = padded(S);
    const int64_t mask_rows = mask && shape->mask[1] ? T : 1;
    float *scratch = aligned_alloc(64, sizeof(float) * (size_t)(K * P + T * P + mask_rows * P));
    if (!scratch) return 1;
    float *weights = scratch + K * P, *allowed = weights + T * P;
    for (int64_t b = 0; b < shape->batch; b++) {
        if (b == 0 || (mask && shape->mask[0]))
            allowances(allowed, P, mask ? mask + b * shape->mask[0] : NULL, shape->mask[1], mask_rows, S);
        for (int64_t h = 0; h < H; h++) {
            const float *columns = transposed ? key + (b * H + h) * K * P : scratch;
            if (!transposed) transpose_keys(scratch, key + b * shape->key[0] + h * shape->key[2], shape->key[1], S, K);
            product(weights, P, query + b * shape->query[0] + h * shape->query[2], shape->query[1], 1, columns, P, T, K,
                    P);
            weigh(weights, T, P, allowed, mask_rows, log_sums ? log_sums + (b * H + h) * T : NULL);
            product(out + (b * T * H + h) * K, H * K, weights, P, 1,
                    value + b * shape->value[0] + h * shape->value[2], shape->value[1], T, S, K);
        }
    }
    free(scratch);
    return 0;
}

int attend_forward(const Shape *shape, const float *query, const float *key, const float *value, const uint8_t *mask,
                   float *out, float *log_sums) {
    return attend(shape, query, key, value, mask, out, log_sums, 0);
}

int attend_transposed(const Shape *shape, const float *query, const float *transposed, const float *value, const uint8_t *mask,
                  float *out) {
    return attend(shape, query, transposed, value, mask, out, NULL, 1);
}

/* The gradients have the layout B T H K and B S H K with strides of their own: `query`, `key` and `value` of `to`. */
int attend_backward(const Shape *shape, const float *query, const float *key, const float *value, const uint8_t *mask,
                    const float *out, const float *log_sums, const float *upstream, const Shape *to,
                    float *query_gradient, float *key_gradient, float *value_gradient) {
    const int64_t T = shape->query_length, S = shape->key_length, H = shape->heads, K = shape->width, P = padded(S);
    const int64_t mask_rows = mask && shape->mask[1] ? T : 1;
    const float scale = 1.0f / sqrtf((float)K);
    float *scratch = aligned_alloc(64, sizeof(float) * (size_t)(2 * K * P + 2 * T * P + mask_rows * P));
    if (!scratch) return 1;
    float *transposed_key = scratch, *transposed_value = transposed_key + K * P;
    float *weights = transposed_value + K * P, *change = weights + T * P, *allowed = change + T * P;
    for (int64_t b = 0; b < shape->batch; b++) {
        if (b == 0 || (mask && shape->mask[0]))
            allowances(allowed, P, mask ? mask + b * shape->mask[0] : NULL, shape->mask[1], mask_rows, S);
        for (int64_t h = 0; h < H; h++) {
            const float *q = query + b * shape->query[0] + h * shape->query[2];
            const float *k = key + b * shape->key[0] + h * shape->key[2];
            const float *v = value + b * shape->value[0] + h * shape->value[2];
            const float *o = out + (b * T * H + h) * K, *g = upstream + (b * T * H + h) * K;
            transpose(transposed_key, P, k, shape->key[1], S, K, scale);
            transpose(transposed_value, P, v, shape->value[1], S, K, 1);
            product(weights, P, q, shape->query[1], 1, transposed_key, P, T, K, P);
            product(change, P, g, H * K, 1, transposed_value, P, T, K, P);
            for (int64_t t = 0; t < T; t++) {
                const float *may = allowed + (mask_rows == 1 ? 0 : t * P);
                float log_sum = log_sums[(b * H + h) * T + t];
                floats shared = {0};
                for (int64_t c = 0; c < K; c += LANES) shared += load(o + t * H * K + c) * load(g + t * H * K + c);
                float mean = sum(shared);
                for (int64_t s = 0; s < P; s += LANES) {
                    float *weight = weights + t * P + s, *slope = change + t * P + s;
                    floats w = choose(load(may + s) > all(0), exponential(load(weight) - log_sum), all(0));
                    store(weight, w);
                    store(slope, w * (load(slope) - mean) * scale);
                }
            }
            product(query_gradient + b * to->query[0] + h * to->query[2], to->query[1], change, P, 1, k,
                    shape->key[1], T, S, K);
            product(key_gradient + b * to->key[0] + h * to->key[2], to->key[1], change, 1, P, q, shape->query[1], S, T,
                    K);
            product(value_gradient + b * to->value[0] + h * to->value[2], to->value[1], weights, 1, P, g, H * K, S, T,
                    K);
        }
    }
    free(scratch);
    return 0;
}
