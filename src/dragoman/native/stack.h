/* Encoder and decoder with packed weights. */

#ifndef DRAGOMAN_STACK_H
#define DRAGOMAN_STACK_H

#include "attention.h"
#include "linear.h"

typedef struct {
    const float *gain, *shift; /* D each; NULL: no norm here */
} Norm;

/* How a layer mixes positions; a recurrent cell (SSRU) would be another kind with its own cache. */
enum { ATTENTION_LAYER = 0 };

typedef struct {
    int64_t kind;
    Linear joint, self_output, query, memory, cross_output, inner, outer; /* an encoder layer has no query, memory, … */
    Norm self_norm, cross_norm, feed_forward_norm;
    float *keys, *values;               /* B C L H K: of the prefixes */
    float *memory_keys, *memory_values; /* B H K P and B S H K, P being S rounded up to whole vectors */
} Layer;

typedef struct {
    Caches caches;
    int64_t sources, layers, norm_first, gelu;
    const float *embedding; /* V D */
    const float *rotary;     /* K per position: sine and cosine of each angle; NULL: no rotary embedding */
    float scale, epsilon;
    const Layer *layer;
    Norm final_norm;
    Linear output;
} Stack;

/* Memory for the activations of some rows; `x` is the start of the allocation. */
typedef struct {
    float *x, *normed, *delta, *scratch, *scales;
    uint8_t *bytes;
} Workspace;

/* The rows of one sentence: its hypotheses, each with one more position. */
typedef struct {
    int64_t slot;   /* of the sentence in the caches */
    int64_t memory; /* of the sentence in the memory and its mask */
    int64_t beam, length;
    const int32_t *ancestors; /* W T */
} BeamRows;

int allocate_workspace(Workspace *workspace, const Stack *stack, int64_t rows);
void embed(const Stack *stack, float *x, int64_t token, const float *position);

/* Apply all layers to workspace->x (rows × D); return NULL if out of memory. The mask is B S. */
const float *decode_positions(const Stack *stack, const Workspace *workspace, const BeamRows *beams, int64_t count,
                            const uint8_t *mask);

#endif
