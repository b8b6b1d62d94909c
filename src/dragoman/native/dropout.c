/* Dropout (section 5.4) in one pass: the mask is computed from a seed and an index and never stored. */

#include "vectors.h"

/* An integer hash: consecutive numbers give independent bits. */
static inline words mix_bits(words index, uint32_t key) {
    words bits = index * 0x9E3779B1u + key;
    bits ^= bits >> 16;
    bits *= 0x7FEB352Du;
    bits ^= bits >> 15;
    bits *= 0x846CA68Bu;
    bits ^= bits >> 16;
    return bits;
}

static inline uint64_t mix_seed(uint64_t seed) {
    seed += 0x9E3779B97F4A7C15u;
    seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9u;
    seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBu;
    return seed ^ (seed >> 31);
}

/* out = residual + (x, of whose elements `dropped` in 256 become zero and the rest are scaled up); residual may be NULL.
   Four bytes of each 32-bit number decide about four elements, sixteen apart; `dropout_mask` in functions.py does the
   same. */
void drop(float *out, const float *x, const float *residual, int64_t count, uint64_t seed, int32_t dropped, float scale) {
    words lanes;
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = (uint32_t)lane;
    const uint64_t mixed = mix_seed(seed);
    const uint32_t first = (uint32_t)mixed, second = (uint32_t)(mixed >> 32); /* start index and key */
    for (int64_t start = 0; start < count; start += 4 * GROUP)
        for (int64_t offset = 0; offset < GROUP; offset += LANES) {
            words bits = mix_bits(lanes + (uint32_t)(start / 4 + offset) + first, second);
            for (int part = 0; part < 4; part++, bits >>= 8) {
                int64_t index = start + part * GROUP + offset;
                ints keep = (ints)(bits & 255u) >= dropped;
                if (index + LANES <= count) {
                    floats kept = choose(keep, load(x + index) * scale, all(0));
                    store(out + index, residual ? load(residual + index) + kept : kept);
                } else
                    for (int lane = 0; lane < LANES && index + lane < count; lane++) {
                        float kept = keep[lane] ? x[index + lane] * scale : 0;
                        out[index + lane] = residual ? residual[index + lane] + kept : kept;
                    }
            }
        }
}
