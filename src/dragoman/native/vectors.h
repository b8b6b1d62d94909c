/* Vectors in the notation of GCC and Clang, which compiles for any processor, as wide as its registers: GCC keeps wider
   ones in memory. */

#ifndef DRAGOMAN_VECTORS_H
#define DRAGOMAN_VECTORS_H

#include <stdint.h>
#include <string.h>

#define GROUP 16 /* floats that sizes and layouts are multiples of, on every processor */
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));

static inline floats load(const float *from) {
    floats value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void store(float *to, floats value) { memcpy(to, &value, sizeof value); }

static inline floats all(float value) { return (floats){0} + value; }

static inline floats choose(ints condition, floats yes, floats no) {
    return (floats)(((ints)yes & condition) | ((ints)no & ~condition));
}

static inline floats larger(floats a, floats b) { return choose(a > b, a, b); }

/* Pairwise, since sequential additions would wait for each other. */
static inline float sum(floats value) {
    float lanes[LANES];
    memcpy(lanes, &value, sizeof lanes);
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
    return lanes[0];
}

static inline float highest(floats value) {
    float lanes[LANES];
    memcpy(lanes, &value, sizeof lanes);
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
    return lanes[0];
}

#if LANES == 16
#define LOWER 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UPPER 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define LOWER 0, 8, 1, 9, 2, 10, 3, 11
#define UPPER 4, 12, 5, 13, 6, 14, 7, 15
#else
#define LOWER 0, 4, 1, 5
#define UPPER 2, 6, 3, 7
#endif

/* Transpose a square block. Each round interleaves row i with row i + LANES / 2, which rotates the bits of an element's
   place (row, column) by one; as many rounds as a row has bits exchange row and column. */
static inline void transpose_block(floats rows[LANES]) {
    for (int size = 1; size < LANES; size *= 2) {
        floats mixed[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            floats a = rows[i], b = rows[i + LANES / 2];
            mixed[2 * i] = __builtin_shufflevector(a, b, LOWER);
            mixed[2 * i + 1] = __builtin_shufflevector(a, b, UPPER);
        }
        memcpy(rows, mixed, sizeof mixed);
    }
}

/* e^x to two units in the last place: 2^n by the exponent's bits, the rest, within ±ln 2 / 2, by a polynomial.
   Below -87 it gives 0, so that what is masked vanishes; NaN stays NaN. */
static inline floats exponential(floats x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    floats shifted = x * 1.44269504088896341f + magic;
    floats n = shifted - magic;
    floats r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    floats p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    ints exponent = ((ints)shifted - (ints)all(magic)) << 23;
    return choose(x < all(-87.0f), all(0.0f), (floats)((ints)p + exponent));
}

#endif
