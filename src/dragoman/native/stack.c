/* Figure 1 without a gradient, a call for each of its parts: the encoder, what the decoder keeps of its output, and the
   decoder for one more position of each of B × W hypotheses.

   The layers, their order and their arithmetic are those of model/transformer.py, whose parameters they are; what is
   saved is the way from Python to torch and back for each of some hundred small operations. */

#include <math.h>
#include <stdlib.h>

#include "stack.h"

static void normalise(const Norm *norm, float epsilon, const float *x, float *out, int64_t rows, int64_t width) {
    for (int64_t r = 0; r < rows; r++, x += width, out += width) {
        floats sums = {0}, squares = {0};
        for (int64_t c = 0; c < width; c += LANES) sums += load(x + c);
        float mean = sum(sums) / (float)width;
        for (int64_t c = 0; c < width; c += LANES) squares += (load(x + c) - mean) * (load(x + c) - mean);
        float factor = 1 / sqrtf(sum(squares) / (float)width + epsilon);
        for (int64_t c = 0; c < width; c += LANES)
            store(out + c, (load(x + c) - mean) * factor * load(norm->gain + c) + load(norm->shift + c));
    }
}

static void bend(float *x, int64_t count, int64_t gelu) {
    if (gelu)
        for (int64_t i = 0; i < count; i++) x[i] *= 0.5f * (1 + erff(x[i] * 0.70710678f));
    else
        for (int64_t i = 0; i < count; i += LANES) store(x + i, larger(all(0), load(x + i)));
}

/* What a sub-layer reads, and what becomes of x when it has spoken: `Residual` of model/layers.py. */
static const float *enter(const Stack *how, const Norm *norm, const Desk *desk, int64_t rows, int64_t width) {
    if (!how->norm_first) return desk->x;
    normalise(norm, how->epsilon, desk->x, desk->reading, rows, width);
    return desk->reading;
}

static void leave(const Stack *how, const Norm *norm, const Desk *desk, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows * width; i += LANES) store(desk->x + i, load(desk->x + i) + load(desk->change + i));
    if (!how->norm_first) normalise(norm, how->epsilon, desk->x, desk->x, rows, width);
}

static Shape shape_of(const Stack *how, int64_t looking, int64_t looked_at, int64_t row, int64_t value_row) {
    const int64_t H = how->caches.heads, K = how->caches.width;
    return (Shape){how->caches.batch, looking, looked_at, H, K, {looking * row, row, K}, {looked_at * row, row, K},
                   {looked_at * value_row, value_row, K}, {looked_at, 0}};
}

static void feed_forward(const Stack *how, const Layer *layer, const Desk *desk, int64_t rows, int64_t D) {
    const float *reading = enter(how, &layer->around_feed_forward, desk, rows, D);
    apply_linear(&layer->inner, reading, rows, desk->wide, desk->bytes, desk->scales);
    bend(desk->wide, rows * layer->inner.outputs, how->gelu);
    apply_linear(&layer->outer, desk->wide, rows, desk->change, desk->bytes, desk->scales);
    leave(how, &layer->around_feed_forward, desk, rows, D);
}

/* Turn the queries and keys of a position by its place: `turned` of model/positions.py. `joint` is 3HK. */
static void turn_pairs(const Stack *how, float *joint, int64_t place) {
    const int64_t half = how->caches.width / 2;
    const float *waves = how->waves + place * 2 * half;
    for (float *left = joint, *right; left < joint + 4 * how->caches.heads * half; left += 2 * half) {
        right = left + half;
        for (int64_t i = 0; i < half; i++) {
            const float sine = waves[2 * i], cosine = waves[2 * i + 1], l = left[i], r = right[i];
            left[i] = l * cosine - r * sine;
            right[i] = r * cosine + l * sine;
        }
    }
}

/* Look back at the prefixes: each sentence has caches, and hypotheses of a length, of its own. */
static int look_back(const Stack *how, const Layer *layer, const Reader *readers, int64_t count, float *joint,
                     float *seen) {
    Caches caches = how->caches;
    const int64_t all_heads = caches.heads * caches.width, sentence = caches.places * caches.room * all_heads;
    int failed = 0;
    caches.batch = 1;
    for (const Reader *reader = readers; reader < readers + count; reader++) {
        caches.beam = reader->beam;
        caches.length = reader->length;
        for (int64_t w = 0; how->waves && w < reader->beam; w++)
            turn_pairs(how, joint + w * 3 * all_heads, reader->length - 1);
        failed |= attend_prefixes(&caches, joint, layer->keys + reader->place * sentence,
                                  layer->values + reader->place * sentence, reader->ancestors, seen);
        joint += reader->beam * 3 * all_heads;
        seen += reader->beam * all_heads;
    }
    return failed;
}

/* Look at the source. */
static int look_across(const Stack *how, const Layer *layer, const Reader *readers, int64_t count, const float *queries,
                       const uint8_t *mask, float *seen) {
    const int64_t all_heads = how->caches.heads * how->caches.width, S = how->sources;
    Shape shape = shape_of(how, 1, S, all_heads, all_heads);
    int failed = 0;
    shape.batch = 1;
    for (const Reader *reader = readers; reader < readers + count; reader++) {
        shape.looking = reader->beam;
        failed |= attend_turned(&shape, queries, layer->memory_keys + reader->memory * all_heads * padded(S),
                                layer->memory_values + reader->memory * S * all_heads, mask + reader->memory * S, seen);
        queries += reader->beam * all_heads;
        seen += reader->beam * all_heads;
    }
    return failed;
}

/* One layer of the decoder for one more position: look back, look at the source, transform. */
static int read_position(const Stack *how, const Layer *layer, const Desk *desk, const Reader *readers, int64_t count,
                         int64_t rows, const uint8_t *mask) {
    const int64_t D = layer->joint.inputs;
    float *seen = desk->wide + rows * 3 * how->caches.heads * how->caches.width;
    const float *reading = enter(how, &layer->around_own, desk, rows, D);
    apply_linear(&layer->joint, reading, rows, desk->wide, desk->bytes, desk->scales);
    int failed = look_back(how, layer, readers, count, desk->wide, seen);
    apply_linear(&layer->own_output, seen, rows, desk->change, desk->bytes, desk->scales);
    leave(how, &layer->around_own, desk, rows, D);
    reading = enter(how, &layer->around_cross, desk, rows, D);
    apply_linear(&layer->query, reading, rows, desk->wide, desk->bytes, desk->scales);
    failed |= look_across(how, layer, readers, count, desk->wide, mask, seen);
    apply_linear(&layer->cross_output, seen, rows, desk->change, desk->bytes, desk->scales);
    leave(how, &layer->around_cross, desk, rows, D);
    feed_forward(how, layer, desk, rows, D);
    return failed;
}

/* One layer of the encoder: every position looks at every other. */
static int read_source(const Stack *how, const Layer *layer, const Desk *desk, const uint8_t *mask) {
    const int64_t S = how->sources, rows = how->caches.batch * S, D = layer->joint.inputs;
    const int64_t all_heads = how->caches.heads * how->caches.width;
    const Shape shape = shape_of(how, S, S, 3 * all_heads, 3 * all_heads);
    float *joint = desk->wide, *seen = joint + rows * 3 * all_heads;
    apply_linear(&layer->joint, enter(how, &layer->around_own, desk, rows, D), rows, joint, desk->bytes, desk->scales);
    for (int64_t r = 0; how->waves && r < rows; r++) turn_pairs(how, joint + r * 3 * all_heads, r % S);
    int failed = attend_forward(&shape, joint, joint + all_heads, joint + 2 * all_heads, mask, seen, NULL);
    apply_linear(&layer->own_output, seen, rows, desk->change, desk->bytes, desk->scales);
    leave(how, &layer->around_own, desk, rows, D);
    feed_forward(how, layer, desk, rows, D);
    return failed;
}

/* Room for rows of every width that is needed on the way. */
int set_up(Desk *desk, const Stack *how, int64_t rows) {
    const int64_t D = how->layer->joint.inputs, F = how->layer->inner.outputs;
    const int64_t all_heads = how->caches.heads * how->caches.width, wide = 4 * all_heads > F ? 4 * all_heads : F;
    desk->x = aligned_alloc(64, sizeof(float) * (size_t)(rows * (3 * D + wide + LANES + (wide > D ? wide : D))));
    if (!desk->x) return 1;
    desk->reading = desk->x + rows * D;
    desk->change = desk->reading + rows * D;
    desk->wide = desk->change + rows * D;
    desk->scales = desk->wide + rows * wide;
    desk->bytes = (uint8_t *)(desk->scales + rows * LANES);
    return 0;
}

/* A token's vector plus that of its position. */
void embed(const Stack *how, float *x, int64_t token, const float *position) {
    const int64_t D = how->layer->joint.inputs;
    for (int64_t c = 0; c < D; c += LANES) {
        floats vector = token ? load(how->embedding + token * D + c) * how->scale : all(0); /* 0 is PAD */
        store(x + c, vector + load(position + c));
    }
}

/* tokens and mask are B S, position S D; states is B S D, zero at padding. All widths are multiples of 16. */
int encode(const Stack *how, const int64_t *tokens, const float *position, const uint8_t *mask, float *states) {
    const int64_t rows = how->caches.batch * how->sources, D = how->layer->joint.inputs;
    Desk desk;
    if (set_up(&desk, how, rows)) return 1;
    for (int64_t r = 0; r < rows; r++) embed(how, desk.x + r * D, tokens[r], position + r % how->sources * D);
    int failed = 0;
    for (int64_t l = 0; l < how->layers; l++) failed |= read_source(how, how->layer + l, &desk, mask);
    const float *last = how->last.gain ? enter(how, &how->last, &desk, rows, D) : desk.x;
    for (int64_t r = 0; r < rows; r++)
        if (mask[r])
            memcpy(states + r * D, last + r * D, sizeof(float) * (size_t)D);
        else
            memset(states + r * D, 0, sizeof(float) * (size_t)D);
    free(desk.x);
    return failed;
}

/* What each layer of the decoder keeps of the encoder's states (B S D): its memory_keys and memory_values. */
int keep_memory(const Stack *how, const float *states) {
    const int64_t B = how->caches.batch, S = how->sources, H = how->caches.heads, K = how->caches.width, P = padded(S);
    Desk desk;
    if (set_up(&desk, how, B * S)) return 1;
    for (int64_t l = 0; l < how->layers; l++) {
        const Layer *layer = how->layer + l;
        apply_linear(&layer->memory, states, B * S, desk.wide, desk.bytes, desk.scales);
        for (int64_t b = 0; b < B; b++) {
            const float *keys = desk.wide + b * S * 2 * H * K;
            for (int64_t h = 0; h < H; h++)
                turn_keys(layer->memory_keys + (b * H + h) * K * P, keys + h * K, 2 * H * K, S, K);
            for (int64_t s = 0; s < S; s++)
                memcpy(layer->memory_values + (b * S + s) * H * K, keys + s * 2 * H * K + H * K,
                       sizeof(float) * (size_t)(H * K));
        }
    }
    free(desk.x);
    return 0;
}

const float *read_positions(const Stack *how, const Desk *desk, const Reader *readers, int64_t count,
                            const uint8_t *mask) {
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++) rows += readers[i].beam;
    for (int64_t l = 0; l < how->layers; l++)
        if (read_position(how, how->layer + l, desk, readers, count, rows, mask)) return NULL;
    return how->last.gain ? enter(how, &how->last, desk, rows, how->layer->joint.inputs) : desk->x;
}

/* One position of W hypotheses of each of B sentences: tokens is B W, position B W D, ancestors B W T, mask B S; logits
   is B W V. */
int decode_step(const Stack *how, const int64_t *tokens, const float *position, const int32_t *ancestors,
                const uint8_t *mask, float *logits) {
    const Caches *caches = &how->caches;
    const int64_t W = caches->beam, T = caches->length, rows = caches->batch * W, D = how->layer->joint.inputs;
    Desk desk = {0};
    Reader *readers = malloc(sizeof(Reader) * (size_t)caches->batch);
    const float *states = NULL;
    if (readers && !set_up(&desk, how, rows)) {
        for (int64_t r = 0; r < rows; r++) embed(how, desk.x + r * D, tokens[r], position + r * D);
        for (int64_t b = 0; b < caches->batch; b++) readers[b] = (Reader){b, b, W, T, ancestors + b * W * T};
        states = read_positions(how, &desk, readers, caches->batch, mask);
    }
    if (states) apply_linear(&how->output, states, rows, logits, desk.bytes, desk.scales);
    free(desk.x);
    free(readers);
    return !states;
}
