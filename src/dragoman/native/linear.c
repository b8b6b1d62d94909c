/* x · Wᵀ + b with weights packed once for many products: in float32, or in int8 with a scale per output.

   Bytes: each row of x is scaled by its own largest element to ±127, so no row depends on its neighbours; the sums are
   exact integers. Multiplying unsigned by signed bytes is one instruction on many processors, so 128 is added to x
   before and 128 times the sum of an output's weights taken away after. */

#include <math.h>

#include "linear.h"
#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

#define PANEL 32                 /* outputs whose weights are stored together */
#define TILE (2 * LANES)         /* outputs computed together */
#define ROWS (LANES == 8 ? 6 : 8) /* rows computed together: their sums stay in the 16 or 32 registers */

typedef uint8_t narrow __attribute__((vector_size(LANES)));
typedef int16_t halves __attribute__((vector_size(4 * LANES)));

/* Add the products of four bytes of x (from 0 to 255) and four bytes of weights (from -127 to 127) in each lane. With the
   signed products of ARM, 128 is taken away from x here and not from the sums later. */
static inline ints add_products(ints sums, ints four, ints weights) {
#if defined(__AVX512VNNI__)
    return (ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)four, (__m512i)weights);
#elif defined(__ARM_FEATURE_DOTPROD)
    return (ints)vdotq_s32((int32x4_t)sums, (int8x16_t)(four ^ (int32_t)0x80808080), (int8x16_t)weights);
#elif defined(__AVX2__)
    /* Even and odd bytes as 16-bit numbers; the sums of two products are exact. */
    ints even = four & 0x00FF00FF, odd = (ints)((words)four >> 8) & 0x00FF00FF;
    halves even_weights = ((halves)weights << 8) >> 8, odd_weights = (halves)weights >> 8;
#if LANES == 16
    sums += (ints)_mm512_madd_epi16((__m512i)even, (__m512i)even_weights);
    return sums + (ints)_mm512_madd_epi16((__m512i)odd, (__m512i)odd_weights);
#else
    sums += (ints)_mm256_madd_epi16((__m256i)even, (__m256i)even_weights);
    return sums + (ints)_mm256_madd_epi16((__m256i)odd, (__m256i)odd_weights);
#endif
#else
    for (int byte = 0; byte < 4; byte++)
        sums += ((four >> (8 * byte)) & 255) * ((weights << (24 - 8 * byte)) >> 24);
    return sums;
#endif
}

/* Store a vector, or its first lanes where a panel extends beyond the last output. */
static inline void put(float *to, floats value, int64_t room) {
    if (__builtin_expect(room >= LANES, 1))
        store(to, value);
    else
        for (int64_t lane = 0; lane < room; lane++) to[lane] = value[lane];
}

/* TILE outputs of some rows; `weights` and `first` are those of the first output. `rows` is a constant wherever this is
   called, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void float_tile(const int rows, const Linear *linear, const float *x,
                                                             const float *weights, float *out, int64_t first) {
    floats sums[ROWS][2];
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = all(0);
    for (int64_t d = 0; d < linear->inputs; d++) {
        floats left = load(weights + d * PANEL), right = load(weights + d * PANEL + LANES);
        for (int r = 0; r < rows; r++) {
            sums[r][0] += left * x[r * linear->inputs + d];
            sums[r][1] += right * x[r * linear->inputs + d];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int half = 0; half < 2; half++) {
            int64_t index = first + half * LANES;
            put(out + r * linear->outputs + index, sums[r][half] + load(linear->bias + index),
                linear->outputs - index);
        }
}

static inline __attribute__((always_inline)) void byte_tile(const int rows, const Linear *linear, const uint8_t *x,
                                                            const float *scales, const int8_t *weights, float *out,
                                                            int64_t first) {
    const int64_t depth = (linear->inputs + 3) / 4 * 4;
    ints sums[ROWS][2];
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = (ints){0};
    for (int64_t d = 0; d < depth; d += 4) {
        ints left, right;
        memcpy(&left, weights + d * PANEL, sizeof left);
        memcpy(&right, weights + d * PANEL + sizeof left, sizeof right);
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + r * depth + d, sizeof four);
            sums[r][0] = add_products(sums[r][0], (ints){0} + four, left);
            sums[r][1] = add_products(sums[r][1], (ints){0} + four, right);
        }
    }
    for (int half = 0; half < 2; half++) {
        int64_t index = first + half * LANES;
        floats scale = load(linear->scales + index), bias = load(linear->bias + index);
        ints offsets = {0};
#ifndef __ARM_FEATURE_DOTPROD
        memcpy(&offsets, linear->offsets + index, sizeof offsets);
#endif
        for (int r = 0; r < rows; r++) {
            floats exact = __builtin_convertvector(sums[r][half] - offsets, floats);
            put(out + r * linear->outputs + index, exact * (scale * scales[r]) + bias, linear->outputs - index);
        }
    }
}

/* Round a row to whole numbers from -127 to 127, to which 128 is added; return the value of one step. */
static float to_bytes(uint8_t *bytes, const float *x, int64_t count) {
    floats tops = {0};
    int64_t whole = count / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) tops = larger(larger(load(x + i), -load(x + i)), tops);
    float most = highest(tops);
    for (int64_t i = whole; i < count; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    float scale = most > 0 ? most / 127 : 1, inverse = 1 / scale;
    for (int64_t i = 0; i < whole; i += LANES) {
        ints bits = (ints)(load(x + i) * inverse + 12582912.0f); /* adding it rounds to the nearest whole number */
        narrow rounded = __builtin_convertvector((bits & 0x1FF) + 128, narrow);
        memcpy(bytes + i, &rounded, sizeof rounded);
    }
    for (int64_t i = whole; i < count; i++) {
        float shifted = x[i] * inverse + 12582912.0f;
        int32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        bytes[i] = (uint8_t)((bits & 0x1FF) + 128);
    }
    for (int64_t i = count; i < (count + 3) / 4 * 4; i++) bytes[i] = 128;
    return most < INFINITY ? scale : NAN;
}

/* All outputs for a block of rows before the next: these rows and their outputs stay in the cache meanwhile. Bytes
   take a quarter of the cache, so they can afford to be read again more often. */
#define EACH_TILE(tile, BLOCK)                                                            \
    for (int64_t start = 0; start < rows; start += BLOCK)                          \
        for (int64_t first = 0; first < linear->outputs; first += TILE) {          \
            int64_t panel = first / PANEL * PANEL, within = first % PANEL;         \
            int64_t r = start, end = start + BLOCK < rows ? start + BLOCK : rows;  \
            for (; r + ROWS <= end; r += ROWS) tile(ROWS);                         \
            for (; r + 4 <= end; r += 4) tile(4);                                  \
            for (; r < end; r++) tile(1);                                          \
        }
#define BYTE_TILE(count)                                                                               \
    byte_tile(count, linear, bytes + r * depth, scales + r, linear->bytes + panel * depth + 4 * within, \
              out + r * linear->outputs, first)
#define FLOAT_TILE(count)                                                                              \
    float_tile(count, linear, x + r * linear->inputs, linear->weights + panel * linear->inputs + within, \
               out + r * linear->outputs, first)

void apply_linear(const Linear *linear, const float *x, int64_t rows, float *out, uint8_t *bytes, float *scales) {
    const int64_t depth = (linear->inputs + 3) / 4 * 4;
    if (!linear->bytes) {
        EACH_TILE(FLOAT_TILE, 64)
        return;
    }
    for (int64_t r = 0; r < rows; r++) scales[r] = to_bytes(bytes + r * depth, x + r * linear->inputs, linear->inputs);
    EACH_TILE(BYTE_TILE, 16)
}
