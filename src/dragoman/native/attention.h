/* The interface of attention.c and prefixes.c. */

#ifndef DRAGOMAN_ATTENTION_H
#define DRAGOMAN_ATTENTION_H

#include "vectors.h"

typedef struct {
    int64_t batch, query_length, key_length, heads, width; /* B T S H K */
    int64_t query[3], key[3], value[3];              /* strides of B, position, H */
    int64_t mask[2];                                 /* strides of B and T; 0 where it is shared */
} Shape;

typedef struct {
    int64_t batch, beam, slots, length, capacity, heads, width; /* B W C T L H K */
} Caches;

int64_t padded(int64_t length);
void transpose_keys(float *transposed, const float *keys, int64_t stride, int64_t key_length, int64_t width);
int attend_transposed(const Shape *shape, const float *query, const float *transposed, const float *value, const uint8_t *mask,
                  float *out);
int attend_forward(const Shape *shape, const float *query, const float *key, const float *value, const uint8_t *mask,
                   float *out, float *log_sums);
int attend_cached(const Caches *caches, const float *joint, float *keys, float *values, const int32_t *ancestors,
                    float *out);

#endif
