/* Beam search for the native Transformer, for many sentences at once; decoding/search.py describes the algorithm. The
   caller may pause it: each call of continue_search decodes so many rows.

   So many sentences are worked on at once, each at a length of its own; when one is done the next takes its slot.
   Only live hypotheses are computed. Position t of a hypothesis, its token as well as its keys and values, lies where
   its ancestors say, so nothing is copied when the beam is reordered. */

#include <math.h>
#include <stdlib.h>

#include "choices.h"
#include "stack.h"

#define BLOCK_ROWS 16 /* rows whose logits are computed at a time, so that they stay in the cache */

enum { START = 2, END = 3 };

typedef struct {
    int64_t sentences, active, beam, n_best;
    const int64_t *max_lengths;  /* B: the maximum output length of each sentence */
    const double *penalties; /* the length penalty of 0, 1, 2 … tokens */
    const float *positions;  /* as many × D */
    const uint8_t *mask;     /* B S */
    const int64_t *ids;      /* token id of each output; NULL: the identity, and the next two are NULL, too */
    const int64_t *starts;   /* B + 1: where a sentence's list begins */
    const int32_t *lists;    /* the allowed outputs of all sentences */
} Options;

/* The finished hypotheses, B N, sorted by score; a missing one has the score -∞. */
typedef struct {
    int32_t *tokens; /* B N L, without START and END */
    int64_t *lengths;
    double *scores, *sums;
    uint8_t *truncated;
} Results;

/* A sentence that is being searched. */
typedef struct {
    int64_t slot, sentence, length, live; /* T positions of each of `live` hypotheses are in the cache */
    int64_t greedy; /* the greedy hypothesis; -1: it has ended */
    int64_t is_extra; /* 1 if the greedy hypothesis is kept in addition to the beam */
    int32_t *tokens;                       /* C L */
    int32_t *ancestors, *spare_ancestors;            /* W T */
    double *sums;                          /* W */
} Item;

typedef struct {
    const Stack *stack;
    const Options *options;
    const Results *results;
    Workspace workspace;
    Item *items; /* the active ones first */
    BeamRows *beams;
    float *logits, *listed_logits; /* BLOCK_ROWS V; the allowed ones of one row */
    float *values;          /* log-probabilities of the W best tokens per row */
    int64_t *tokens;        /* those tokens */
    double *candidate_sums;          /* C: log-probabilities of the best continuations */
    int64_t *candidates;        /* C: the continuations: parent × W + rank among the parent's best */
    char *arena;
    int64_t count, next; /* active sentences; the sentence that is started next */
} Search;

static void start_item(const Search *search, Item *item, int64_t sentence) {
    item->sentence = sentence;
    item->length = item->live = 1;
    item->greedy = item->is_extra = item->ancestors[0] = 0;
    item->sums[0] = 0;
    item->tokens[0] = START;
    for (int64_t n = sentence * search->options->n_best; n < (sentence + 1) * search->options->n_best; n++)
        search->results->scores[n] = -INFINITY;
}

/* Insert a finished hypothesis into the sorted results of its sentence; of equal scores the earlier stays first. */
static void add_result(const Search *search, const Item *item, int64_t parent, int64_t token, double sum) {
    const int64_t N = search->options->n_best, L = search->stack->caches.capacity, produced = item->length;
    const Results *all = search->results;
    const double score = sum / search->options->penalties[produced];
    const int64_t first = item->sentence * N;
    int64_t at = first + N;
    while (at > first && score > all->scores[at - 1]) at--;
    if (at == first + N) return;
    const size_t behind = (size_t)(first + N - 1 - at);
    memmove(all->tokens + (at + 1) * L, all->tokens + at * L, behind * (size_t)L * sizeof(int32_t));
    memmove(all->lengths + at + 1, all->lengths + at, behind * sizeof(int64_t));
    memmove(all->scores + at + 1, all->scores + at, behind * sizeof(double));
    memmove(all->sums + at + 1, all->sums + at, behind * sizeof(double));
    memmove(all->truncated + at + 1, all->truncated + at, behind);
    for (int64_t t = 1; t < item->length; t++)
        all->tokens[at * L + t - 1] = item->tokens[item->ancestors[parent * item->length + t] * L + t];
    all->truncated[at] = token != END;
    if (token != END) all->tokens[at * L + produced - 1] = (int32_t)token;
    all->lengths[at] = token == END ? produced - 1 : produced;
    all->scores[at] = score;
    all->sums[at] = sum;
}

/* Select the W best continuations, and the greedy one in addition if it is not among them; return their number. */
static int64_t select_best(const Search *search, const Item *item, const float *values) {
    const int64_t W = search->options->beam;
    int64_t count = 0;
    for (int64_t c = 0; c < (item->live - item->is_extra) * W; c++) {
        double sum = item->sums[c / W] + (double)values[c];
        if (!(sum > -INFINITY) || (count == W && !(sum > search->candidate_sums[W - 1]))) continue;
        int64_t at = count < W ? count++ : W - 1;
        for (; at && sum > search->candidate_sums[at - 1]; at--) {
            search->candidate_sums[at] = search->candidate_sums[at - 1];
            search->candidates[at] = search->candidates[at - 1];
        }
        search->candidate_sums[at] = sum;
        search->candidates[at] = c;
    }
    const int64_t wanted = item->greedy * W;
    if (item->greedy < 0) return count;
    for (int64_t i = 0; i < count; i++)
        if (search->candidates[i] == wanted) return count;
    search->candidate_sums[count] = item->sums[item->greedy] + (double)values[wanted];
    search->candidates[count] = wanted;
    return search->candidate_sums[count] > -INFINITY ? count + 1 : count;
}

/* Extend a beam by the best continuations, and record those that end. Return whether the sentence is unfinished. */
static int extend_item(const Search *search, Item *item, const float *values, const int64_t *tokens) {
    const int64_t W = search->options->beam, T = item->length, L = search->stack->caches.capacity;
    const int64_t max_length = search->options->max_lengths[item->sentence], count = select_best(search, item, values);
    const int64_t wanted = item->greedy < 0 ? -1 : item->greedy * W;
    int64_t live = 0;
    double most = -INFINITY;
    item->greedy = -1;
    item->is_extra = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t parent = search->candidates[i] / W, token = tokens[search->candidates[i]];
        if (token == END || max_length <= T) {
            add_result(search, item, parent, token, search->candidate_sums[i]);
            continue;
        }
        int32_t *ancestors = item->spare_ancestors + live * (T + 1);
        memcpy(ancestors, item->ancestors + parent * T, (size_t)T * sizeof(int32_t));
        ancestors[T] = (int32_t)live;
        item->tokens[live * L + T] = (int32_t)token;
        item->sums[live] = search->candidate_sums[i];
        most = search->candidate_sums[i] > most ? search->candidate_sums[i] : most;
        if (search->candidates[i] == wanted) {
            item->greedy = live;
            item->is_extra = i == W;
        }
        live++;
    }
    int32_t *before = item->ancestors;
    item->ancestors = item->spare_ancestors;
    item->spare_ancestors = before;
    item->length++;
    item->live = live;
    /* Log-probabilities only fall, so the best score of a live hypothesis is its present sum at the maximum length. */
    const double worst = search->results->scores[(item->sentence + 1) * search->options->n_best - 1];
    return live && most / search->options->penalties[max_length] > worst;
}

/* The most probable tokens after one row, from the sentence's list if there is one. */
static void score_row(const Search *search, const Item *item, const float *logits, float *values, int64_t *tokens) {
    const Options *options = search->options;
    const int64_t first_allowed = item->length == 1 ? END + 1 : END;
    if (!options->ids) {
        top_tokens(logits, 1, search->stack->output.outputs, options->beam, first_allowed, values, tokens);
        return;
    }
    const int32_t *list = options->lists + options->starts[item->sentence];
    const int64_t count = options->starts[item->sentence + 1] - options->starts[item->sentence];
    for (int64_t i = 0; i < count; i++) search->listed_logits[i] = logits[list[i]];
    top_tokens(search->listed_logits, 1, count, options->beam, first_allowed, values, tokens);
    for (int64_t i = 0; i < options->beam; i++) tokens[i] = options->ids[list[tokens[i]]];
}

/* The most probable tokens after each row, and their log-probabilities. */
static void score_rows(const Search *search, const float *states, int64_t rows) {
    const Linear *output = &search->stack->output;
    const int64_t W = search->options->beam, V = output->outputs;
    const Item *item = search->items;
    int64_t left = item->live;
    for (int64_t start = 0; start < rows; start += BLOCK_ROWS) {
        const int64_t count = rows - start < BLOCK_ROWS ? rows - start : BLOCK_ROWS;
        apply_linear(output, states + start * output->inputs, count, search->logits, search->workspace.bytes,
                     search->workspace.scales);
        for (int64_t r = 0; r < count; r++, left--) {
            if (!left) left = (++item)->live;
            const int64_t best = (start + r) * W;
            score_row(search, item, search->logits + r * V, search->values + best, search->tokens + best);
        }
    }
}

/* Decode one more position of every active sentence; return the number of rows, or -1 on failure. */
static int64_t decode_active(const Search *search) {
    const int64_t D = search->stack->layer->joint.inputs, L = search->stack->caches.capacity;
    int64_t rows = 0;
    for (int64_t i = 0; i < search->count; i++) {
        const Item *item = search->items + i;
        const float *position = search->options->positions + (item->length - 1) * D;
        search->beams[i] = (BeamRows){item->slot, item->sentence, item->live, item->length, item->ancestors};
        for (int64_t w = 0; w < item->live; w++)
            embed(search->stack, search->workspace.x + rows++ * D, item->tokens[w * L + item->length - 1], position);
    }
    const float *states = decode_positions(search->stack, &search->workspace, search->beams, search->count, search->options->mask);
    if (!states) return -1;
    score_rows(search, states, rows);
    return rows;
}

/* Extend all active sentences; a finished one is replaced by the next. */
static void extend_all(Search *search) {
    int64_t first = 0, continuing = 0;
    for (int64_t i = 0; i < search->count; i++) {
        Item *item = search->items + i;
        const int64_t rows = item->live;
        int continues = extend_item(search, item, search->values + first, search->tokens + first);
        first += rows * search->options->beam;
        if (!continues && search->next < search->options->sentences) {
            start_item(search, item, search->next++);
            continues = 1;
        }
        if (!continues) continue;
        const Item moved = *item;
        *item = search->items[continuing];
        search->items[continuing++] = moved;
    }
    search->count = continuing;
}

/* Allocate a part of the arena in whole cache lines; without an arena only count the bytes. */
static void *allocate(char *arena, size_t *used, size_t bytes) {
    void *piece = arena ? arena + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return piece;
}

/* Lay out the arena; return the number of bytes needed. */
static size_t lay_out(Search *search, char *arena) {
    const size_t A = (size_t)search->options->active, W = (size_t)search->options->beam, L = (size_t)search->stack->caches.capacity;
    const size_t C = (size_t)search->stack->caches.slots, V = (size_t)search->stack->output.outputs;
    size_t used = 0;
    search->items = allocate(arena, &used, A * sizeof(Item));
    search->beams = allocate(arena, &used, A * sizeof(BeamRows));
    search->logits = allocate(arena, &used, BLOCK_ROWS * V * sizeof(float));
    search->listed_logits = allocate(arena, &used, V * sizeof(float));
    search->values = allocate(arena, &used, A * C * W * sizeof(float));
    search->tokens = allocate(arena, &used, A * C * W * sizeof(int64_t));
    search->candidate_sums = allocate(arena, &used, C * sizeof(double));
    search->candidates = allocate(arena, &used, C * sizeof(int64_t));
    for (size_t a = 0; a < A; a++) {
        Item item = {.slot = (int64_t)a};
        item.tokens = allocate(arena, &used, C * L * sizeof(int32_t));
        item.ancestors = allocate(arena, &used, C * L * sizeof(int32_t));
        item.spare_ancestors = allocate(arena, &used, C * L * sizeof(int32_t));
        item.sums = allocate(arena, &used, C * sizeof(double));
        if (arena) search->items[a] = item;
    }
    return used;
}

/* Free a search; NULL is allowed. */
void end_search(Search *search) {
    if (!search) return;
    free(search->workspace.x);
    free(search->arena);
    free(search);
}

/* Begin to search B sentences with projected memory; the caches hold `active` sentences of C = W + 1 slots. What the
   arguments point to must stay until the search is freed. Return NULL if out of memory. */
Search *start_search(const Stack *stack, const Options *options, const Results *results) {
    Search *search = calloc(1, sizeof(Search));
    if (!search) return NULL;
    *search = (Search){.stack = stack, .options = options, .results = results};
    search->arena = aligned_alloc(64, lay_out(search, NULL));
    if (!search->arena || allocate_workspace(&search->workspace, stack, options->active * stack->caches.slots)) {
        end_search(search);
        return NULL;
    }
    lay_out(search, search->arena);
    while (search->count < options->active && search->next < options->sentences)
        start_item(search, search->items + search->count++, search->next++);
    return search;
}

/* Go on until all sentences are finished, or at least so many rows have been decoded. Return the number of sentences
   that are being searched, 0 at the end, or -1 on failure. */
int64_t continue_search(Search *search, int64_t rows) {
    while (search->count && rows > 0) {
        const int64_t decoded = decode_active(search);
        if (decoded < 0) return -1;
        extend_all(search);
        rows -= decoded;
    }
    return search->count;
}
