/* A packed linear layer: panels of 32 outputs. */

#ifndef DRAGOMAN_LINEAR_H
#define DRAGOMAN_LINEAR_H

#include "vectors.h"

typedef struct {
    int64_t inputs, outputs;
    const float *bias;      /* padded to whole panels, like all that follows */
    const float *weights;   /* panel, input, 32 outputs; NULL if the weights are bytes */
    const int8_t *bytes;    /* panel, 4 inputs at a time, 32 outputs, 4 */
    const float *scales;    /* the value of one step, per output */
    const int32_t *offsets; /* 128 times the sum of an output's bytes */
} Linear;

/* out (rows × outputs) = x (rows × inputs) · Wᵀ + b. Bytes need room for rows × inputs (rounded up to 4) and rows. */
void apply_linear(const Linear *linear, const float *x, int64_t rows, float *out, uint8_t *bytes, float *scales);

#endif
