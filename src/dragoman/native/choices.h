/* The interface of choices.c. */

#ifndef DRAGOMAN_CHOICES_H
#define DRAGOMAN_CHOICES_H

#include "vectors.h"

void top_tokens(const float *logits, int64_t rows, int64_t width, int64_t count, int64_t first_allowed, float *best,
                 int64_t *indices);

#endif
