/* What the decoder needs of attention.c and prefixes.c; the explanations are there. */

#ifndef DRAGOMAN_ATTENTION_H
#define DRAGOMAN_ATTENTION_H

#include "vectors.h"

typedef struct {
    int64_t batch, looking, looked_at, heads, width; /* B T S H K */
    int64_t query[3], key[3], value[3];              /* strides of B, position, H */
    int64_t mask[2];                                 /* strides of B and T; 0 where it is the same for all */
} Shape;

typedef struct {
    int64_t batch, beam, places, length, room, heads, width; /* B W C T L H K */
} Caches;

int64_t padded(int64_t length);
void turn_keys(float *turned, const float *keys, int64_t stride, int64_t looked_at, int64_t width);
int attend_turned(const Shape *shape, const float *query, const float *turned, const float *value, const uint8_t *mask,
                  float *out);
int attend_forward(const Shape *shape, const float *query, const float *key, const float *value, const uint8_t *mask,
                   float *out, float *log_sums);
int attend_prefixes(const Caches *caches, const float *joint, float *keys, float *values, const int32_t *ancestors,
                    float *out);

#endif
