/* The Transformer without gradients, one call per part: the encoder, the projection of its output, and the decoder for
   one more position of each of B × W hypotheses.

   The layers, their order and their arithmetic are those of models/transformer.py, whose parameters they are; what is
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

static void activate(float *x, int64_t count, int64_t gelu) {
    if (gelu)
        for (int64_t i = 0; i < count; i++) x[i] *= 0.5f * (1 + erff(x[i] * 0.70710678f));
    else
        for (int64_t i = 0; i < count; i += LANES) store(x + i, larger(all(0), load(x + i)));
}

/* `Residual` of models/layers.py: the input of a sub-layer, and the residual sum. */
static const float *pre_norm(const Stack *stack, const Norm *norm, const Workspace *workspace, int64_t rows, int64_t width) {
    if (!stack->norm_first) return workspace->x;
    normalise(norm, stack->epsilon, workspace->x, workspace->normed, rows, width);
    return workspace->normed;
}

static void add_residual(const Stack *stack, const Norm *norm, const Workspace *workspace, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows * width; i += LANES) store(workspace->x + i, load(workspace->x + i) + load(workspace->delta + i));
    if (!stack->norm_first) normalise(norm, stack->epsilon, workspace->x, workspace->x, rows, width);
}

static Shape shape_of(const Stack *stack, int64_t query_length, int64_t key_length, int64_t row, int64_t value_row) {
    const int64_t H = stack->caches.heads, K = stack->caches.width;
    return (Shape){stack->caches.batch, query_length, key_length, H, K, {query_length * row, row, K}, {key_length * row, row, K},
                   {key_length * value_row, value_row, K}, {key_length, 0}};
}

static void feed_forward(const Stack *stack, const Layer *layer, const Workspace *workspace, int64_t rows, int64_t D) {
    const float *normed = pre_norm(stack, &layer->feed_forward_norm, workspace, rows, D);
    apply_linear(&layer->inner, normed, rows, workspace->scratch, workspace->bytes, workspace->scales);
    activate(workspace->scratch, rows * layer->inner.outputs, stack->gelu);
    apply_linear(&layer->outer, workspace->scratch, rows, workspace->delta, workspace->bytes, workspace->scales);
    add_residual(stack, &layer->feed_forward_norm, workspace, rows, D);
}

/* `apply_rotary_embedding` of models/positions.py for the queries and keys of one position. `joint` is 3HK. */
static void apply_rotary(const Stack *stack, float *joint, int64_t place) {
    const int64_t half = stack->caches.width / 2;
    const float *rotary = stack->rotary + place * 2 * half;
    for (float *left = joint, *right; left < joint + 4 * stack->caches.heads * half; left += 2 * half) {
        right = left + half;
        for (int64_t i = 0; i < half; i++) {
            const float sine = rotary[2 * i], cosine = rotary[2 * i + 1], l = left[i], r = right[i];
            left[i] = l * cosine - r * sine;
            right[i] = r * cosine + l * sine;
        }
    }
}

/* Self-attention over the prefixes; each sentence has its own caches and length. */
static int self_attention(const Stack *stack, const Layer *layer, const BeamRows *beams, int64_t count, float *joint,
                     float *attended) {
    Caches caches = stack->caches;
    const int64_t all_heads = caches.heads * caches.width, sentence = caches.slots * caches.capacity * all_heads;
    int failed = 0;
    caches.batch = 1;
    for (const BeamRows *beam_rows = beams; beam_rows < beams + count; beam_rows++) {
        caches.beam = beam_rows->beam;
        caches.length = beam_rows->length;
        for (int64_t w = 0; stack->rotary && w < beam_rows->beam; w++)
            apply_rotary(stack, joint + w * 3 * all_heads, beam_rows->length - 1);
        failed |= attend_cached(&caches, joint, layer->keys + beam_rows->slot * sentence,
                                  layer->values + beam_rows->slot * sentence, beam_rows->ancestors, attended);
        joint += beam_rows->beam * 3 * all_heads;
        attended += beam_rows->beam * all_heads;
    }
    return failed;
}

/* Cross-attention. */
static int cross_attention(const Stack *stack, const Layer *layer, const BeamRows *beams, int64_t count, const float *queries,
                       const uint8_t *mask, float *attended) {
    const int64_t all_heads = stack->caches.heads * stack->caches.width, S = stack->sources;
    Shape shape = shape_of(stack, 1, S, all_heads, all_heads);
    int failed = 0;
    shape.batch = 1;
    for (const BeamRows *beam_rows = beams; beam_rows < beams + count; beam_rows++) {
        shape.query_length = beam_rows->beam;
        failed |= attend_transposed(&shape, queries, layer->memory_keys + beam_rows->memory * all_heads * padded(S),
                                layer->memory_values + beam_rows->memory * S * all_heads, mask + beam_rows->memory * S, attended);
        queries += beam_rows->beam * all_heads;
        attended += beam_rows->beam * all_heads;
    }
    return failed;
}

/* One decoder layer for one more position. */
static int decoder_layer(const Stack *stack, const Layer *layer, const Workspace *workspace, const BeamRows *beams, int64_t count,
                         int64_t rows, const uint8_t *mask) {
    if (layer->kind != ATTENTION_LAYER) return 1;
    const int64_t D = layer->joint.inputs;
    float *attended = workspace->scratch + rows * 3 * stack->caches.heads * stack->caches.width;
    const float *normed = pre_norm(stack, &layer->self_norm, workspace, rows, D);
    apply_linear(&layer->joint, normed, rows, workspace->scratch, workspace->bytes, workspace->scales);
    int failed = self_attention(stack, layer, beams, count, workspace->scratch, attended);
    apply_linear(&layer->self_output, attended, rows, workspace->delta, workspace->bytes, workspace->scales);
    add_residual(stack, &layer->self_norm, workspace, rows, D);
    normed = pre_norm(stack, &layer->cross_norm, workspace, rows, D);
    apply_linear(&layer->query, normed, rows, workspace->scratch, workspace->bytes, workspace->scales);
    failed |= cross_attention(stack, layer, beams, count, workspace->scratch, mask, attended);
    apply_linear(&layer->cross_output, attended, rows, workspace->delta, workspace->bytes, workspace->scales);
    add_residual(stack, &layer->cross_norm, workspace, rows, D);
    feed_forward(stack, layer, workspace, rows, D);
    return failed;
}

/* One encoder layer. */
static int encoder_layer(const Stack *stack, const Layer *layer, const Workspace *workspace, const uint8_t *mask) {
    const int64_t S = stack->sources, rows = stack->caches.batch * S, D = layer->joint.inputs;
    const int64_t all_heads = stack->caches.heads * stack->caches.width;
    const Shape shape = shape_of(stack, S, S, 3 * all_heads, 3 * all_heads);
    float *joint = workspace->scratch, *attended = joint + rows * 3 * all_heads;
    apply_linear(&layer->joint, pre_norm(stack, &layer->self_norm, workspace, rows, D), rows, joint, workspace->bytes, workspace->scales);
    for (int64_t r = 0; stack->rotary && r < rows; r++) apply_rotary(stack, joint + r * 3 * all_heads, r % S);
    int failed = attend_forward(&shape, joint, joint + all_heads, joint + 2 * all_heads, mask, attended, NULL);
    apply_linear(&layer->self_output, attended, rows, workspace->delta, workspace->bytes, workspace->scales);
    add_residual(stack, &layer->self_norm, workspace, rows, D);
    feed_forward(stack, layer, workspace, rows, D);
    return failed;
}

/* Allocate the workspace for a number of rows. */
int allocate_workspace(Workspace *workspace, const Stack *stack, int64_t rows) {
    const int64_t D = stack->layer->joint.inputs, F = stack->layer->inner.outputs;
    const int64_t all_heads = stack->caches.heads * stack->caches.width, scratch = 4 * all_heads > F ? 4 * all_heads : F;
    workspace->x = aligned_alloc(64, sizeof(float) * (size_t)(rows * (3 * D + scratch + GROUP + (scratch > D ? scratch : D))));
    if (!workspace->x) return 1;
    workspace->normed = workspace->x + rows * D;
    workspace->delta = workspace->normed + rows * D;
    workspace->scratch = workspace->delta + rows * D;
    workspace->scales = workspace->scratch + rows * scratch;
    workspace->bytes = (uint8_t *)(workspace->scales + rows * GROUP);
    return 0;
}

/* The sum of a token's and its position's vector. */
void embed(const Stack *stack, float *x, int64_t token, const float *position) {
    const int64_t D = stack->layer->joint.inputs;
    for (int64_t c = 0; c < D; c += LANES) {
        floats vector = token ? load(stack->embedding + token * D + c) * stack->scale : all(0); /* 0 is PAD */
        store(x + c, vector + load(position + c));
    }
}

/* Encode tokens with the layers from `first` up to `end`, which may be a part of all. tokens and mask are B S, position
   S D; states is B S D, read if there are layers before, and zero at padding after the last. All widths are multiples of
   16. */
int encode(const Stack *stack, int64_t first, int64_t end, const int64_t *tokens, const float *position,
           const uint8_t *mask, float *states) {
    const int64_t rows = stack->caches.batch * stack->sources, D = stack->layer->joint.inputs;
    Workspace workspace;
    if (allocate_workspace(&workspace, stack, rows)) return 1;
    if (first)
        memcpy(workspace.x, states, sizeof(float) * (size_t)(rows * D));
    else
        for (int64_t r = 0; r < rows; r++) embed(stack, workspace.x + r * D, tokens[r], position + r % stack->sources * D);
    int failed = 0;
    for (int64_t l = first; l < end; l++) failed |= encoder_layer(stack, stack->layer + l, &workspace, mask);
    const int is_last = end == stack->layers;
    const float *last = is_last && stack->final_norm.gain ? pre_norm(stack, &stack->final_norm, &workspace, rows, D) : workspace.x;
    for (int64_t r = 0; r < rows; r++)
        if (mask[r] || !is_last)
            memcpy(states + r * D, last + r * D, sizeof(float) * (size_t)D);
        else
            memset(states + r * D, 0, sizeof(float) * (size_t)D);
    free(workspace.x);
    return failed;
}

/* Project the encoder's states (B S D) to memory_keys and memory_values of each decoder layer. */
int project_memory(const Stack *stack, const float *states) {
    const int64_t B = stack->caches.batch, S = stack->sources, H = stack->caches.heads, K = stack->caches.width, P = padded(S);
    Workspace workspace;
    if (allocate_workspace(&workspace, stack, B * S)) return 1;
    for (int64_t l = 0; l < stack->layers; l++) {
        const Layer *layer = stack->layer + l;
        apply_linear(&layer->memory, states, B * S, workspace.scratch, workspace.bytes, workspace.scales);
        for (int64_t b = 0; b < B; b++) {
            const float *keys = workspace.scratch + b * S * 2 * H * K;
            for (int64_t h = 0; h < H; h++)
                transpose_keys(layer->memory_keys + (b * H + h) * K * P, keys + h * K, 2 * H * K, S, K);
            for (int64_t s = 0; s < S; s++)
                memcpy(layer->memory_values + (b * S + s) * H * K, keys + s * 2 * H * K + H * K,
                       sizeof(float) * (size_t)(H * K));
        }
    }
    free(workspace.x);
    return 0;
}

const float *decode_positions(const Stack *stack, const Workspace *workspace, const BeamRows *beams, int64_t count,
                            const uint8_t *mask) {
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++) rows += beams[i].beam;
    for (int64_t l = 0; l < stack->layers; l++)
        if (decoder_layer(stack, stack->layer + l, workspace, beams, count, rows, mask)) return NULL;
    return stack->final_norm.gain ? pre_norm(stack, &stack->final_norm, workspace, rows, stack->layer->joint.inputs) : workspace->x;
}

/* One position of W hypotheses of each of B sentences: tokens is B W, position B W D, ancestors B W T, mask B S; logits
   is B W V. */
int decode_step(const Stack *stack, const int64_t *tokens, const float *position, const int32_t *ancestors,
                const uint8_t *mask, float *logits) {
    const Caches *caches = &stack->caches;
    const int64_t W = caches->beam, T = caches->length, rows = caches->batch * W, D = stack->layer->joint.inputs;
    Workspace workspace = {0};
    BeamRows *beams = malloc(sizeof(BeamRows) * (size_t)caches->batch);
    const float *states = NULL;
    if (beams && !allocate_workspace(&workspace, stack, rows)) {
        for (int64_t r = 0; r < rows; r++) embed(stack, workspace.x + r * D, tokens[r], position + r * D);
        for (int64_t b = 0; b < caches->batch; b++) beams[b] = (BeamRows){b, b, W, T, ancestors + b * W * T};
        states = decode_positions(stack, &workspace, beams, caches->batch, mask);
    }
    if (states) apply_linear(&stack->output, states, rows, logits, workspace.bytes, workspace.scales);
    free(workspace.x);
    free(beams);
    return !states;
}
