/* Both sides of figure 1 with their weights packed, and what reads through the decoder one position at a time. */

#ifndef DRAGOMAN_STACK_H
#define DRAGOMAN_STACK_H

#include "attention.h"
#include "linear.h"

typedef struct {
    const float *gain, *shift; /* D each; NULL: no norm here */
} Norm;

typedef struct {
    Linear joint, own_output, query, memory, cross_output, inner, outer; /* an encoder layer has no query, memory, … */
    Norm around_own, around_cross, around_feed_forward;
    float *keys, *values;               /* B C L H K: of the prefixes */
    float *memory_keys, *memory_values; /* B H K P and B S H K, P being S rounded up to whole vectors */
} Layer;

typedef struct {
    Caches caches;
    int64_t sources, layers, norm_first, gelu;
    const float *embedding; /* V D */
    const float *waves;     /* a row of K a place: sine and cosine of each pair's angle; NULL: nothing is turned */
    float scale, epsilon;
    const Layer *layer;
    Norm last;
    Linear output;
} Stack;

/* Room for the rows that are worked on: `x` is its beginning and all of it. */
typedef struct {
    float *x, *reading, *change, *wide, *scales;
    uint8_t *bytes;
} Desk;

/* The hypotheses of one sentence that read one more position each; their rows follow those of the sentence before. */
typedef struct {
    int64_t place;  /* of the sentence in the caches */
    int64_t memory; /* of the sentence in the memory and its mask */
    int64_t beam, length;
    const int32_t *ancestors; /* W T */
} Reader;

int set_up(Desk *desk, const Stack *how, int64_t rows);
void embed(const Stack *how, float *x, int64_t token, const float *position);

/* Take what stands in desk->x (rows × D) through all layers; NULL if memory ran out. The mask is B S. */
const float *read_positions(const Stack *how, const Desk *desk, const Reader *readers, int64_t count,
                            const uint8_t *mask);

#endif
