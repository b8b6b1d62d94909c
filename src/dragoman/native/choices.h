/* What the search needs of choices.c; the explanation is there. */

#ifndef DRAGOMAN_CHOICES_H
#define DRAGOMAN_CHOICES_H

#include "vectors.h"

void choose_best(const float *logits, int64_t rows, int64_t width, int64_t count, int64_t first_allowed, float *best,
                 int64_t *places);

#endif
