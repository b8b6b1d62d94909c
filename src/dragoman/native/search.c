/* The beam search of decoding/search.py, which explains it, for the compiled Transformer: one call for many sentences.

   So many sentences are worked on at once, each at a length of its own; when one is done the next takes its place.
   Only live hypotheses are computed. Position t of a hypothesis, its token as well as its keys and values, lies where
   its ancestors say, so nothing is copied when the beam is reordered. */

#include <math.h>
#include <stdlib.h>

#include "choices.h"
#include "stack.h"

#define TOGETHER 16 /* rows whose logits stand in memory at a time: they stay in the cache while the best are found */

enum { START = 2, END = 3 };

typedef struct {
    int64_t sentences, at_once, beam, n_best;
    const int64_t *longest;  /* B: tokens that a sentence may produce */
    const double *penalties; /* the length penalty of 0, 1, 2 … tokens */
    const float *positions;  /* as many × D */
    const uint8_t *mask;     /* B S */
    const int64_t *ids;      /* what an output stands for, and NULL if for itself; then the next two are NULL too */
    const int64_t *starts;   /* B + 1: where a sentence's list begins */
    const int32_t *lists;    /* the outputs that may be chosen, sentence after sentence */
} Plan;

/* The finished hypotheses, B N, the best first; where there are fewer the score is -∞. */
typedef struct {
    int32_t *tokens; /* B N L, without START and END */
    int64_t *lengths;
    double *scores, *sums;
    uint8_t *truncated;
} Finished;

/* One sentence at work. */
typedef struct {
    int64_t place, sentence, length, live; /* T positions of each of `live` hypotheses are read or being read */
    int64_t greedy; /* the one that took the likeliest token each time; -1: it has ended */
    int64_t beside; /* 1 if it is the last one, beyond the beam: then it competes with nobody */
    int32_t *tokens;                       /* C L */
    int32_t *ancestors, *spare;            /* W T */
    double *sums;                          /* W */
} Work;

typedef struct {
    const Stack *how;
    const Plan *plan;
    const Finished *finished;
    Desk desk;
    Work *works; /* those at work come first */
    Reader *readers;
    float *logits, *listed; /* TOGETHER V; those of one row that are on its sentence's list */
    float *values;          /* of each row's best tokens, W each */
    int64_t *tokens;        /* those tokens */
    double *ranks;          /* C: the sums of the best ways to go on */
    int64_t *chosen;        /* C: which they are, parent × W + rank among the parent's best */
} Search;

static void begin(const Search *search, Work *work, int64_t sentence) {
    work->sentence = sentence;
    work->length = work->live = 1;
    work->greedy = work->beside = work->ancestors[0] = 0;
    work->sums[0] = 0;
    work->tokens[0] = START;
    for (int64_t n = sentence * search->plan->n_best; n < (sentence + 1) * search->plan->n_best; n++)
        search->finished->scores[n] = -INFINITY;
}

/* Put an ended hypothesis in its place among the finished ones of its sentence; of equal ones the earlier stays. */
static void finish(const Search *search, const Work *work, int64_t parent, int64_t token, double sum) {
    const int64_t N = search->plan->n_best, L = search->how->caches.room, produced = work->length;
    const Finished *all = search->finished;
    const double score = sum / search->plan->penalties[produced];
    const int64_t first = work->sentence * N;
    int64_t at = first + N;
    while (at > first && score > all->scores[at - 1]) at--;
    if (at == first + N) return;
    const size_t behind = (size_t)(first + N - 1 - at);
    memmove(all->tokens + (at + 1) * L, all->tokens + at * L, behind * (size_t)L * sizeof(int32_t));
    memmove(all->lengths + at + 1, all->lengths + at, behind * sizeof(int64_t));
    memmove(all->scores + at + 1, all->scores + at, behind * sizeof(double));
    memmove(all->sums + at + 1, all->sums + at, behind * sizeof(double));
    memmove(all->truncated + at + 1, all->truncated + at, behind);
    for (int64_t t = 1; t < work->length; t++)
        all->tokens[at * L + t - 1] = work->tokens[work->ancestors[parent * work->length + t] * L + t];
    all->truncated[at] = token != END;
    if (token != END) all->tokens[at * L + produced - 1] = (int32_t)token;
    all->lengths[at] = token == END ? produced - 1 : produced;
    all->scores[at] = score;
    all->sums[at] = sum;
}

/* Choose the W best ways to go on, and the greedy one beside them if it is not among them; return how many. */
static int64_t select_best(const Search *search, const Work *work, const float *values) {
    const int64_t W = search->plan->beam;
    int64_t count = 0;
    for (int64_t c = 0; c < (work->live - work->beside) * W; c++) {
        double sum = work->sums[c / W] + (double)values[c];
        if (!(sum > -INFINITY) || (count == W && !(sum > search->ranks[W - 1]))) continue;
        int64_t at = count < W ? count++ : W - 1;
        for (; at && sum > search->ranks[at - 1]; at--) {
            search->ranks[at] = search->ranks[at - 1];
            search->chosen[at] = search->chosen[at - 1];
        }
        search->ranks[at] = sum;
        search->chosen[at] = c;
    }
    const int64_t wanted = work->greedy * W;
    if (work->greedy < 0) return count;
    for (int64_t i = 0; i < count; i++)
        if (search->chosen[i] == wanted) return count;
    search->ranks[count] = work->sums[work->greedy] + (double)values[wanted];
    search->chosen[count] = wanted;
    return search->ranks[count] > -INFINITY ? count + 1 : count;
}

/* Go on with the best: note what ends, and give what lives its place in the beam. Say whether anything is left to do. */
static int extend(const Search *search, Work *work, const float *values, const int64_t *tokens) {
    const int64_t W = search->plan->beam, T = work->length, L = search->how->caches.room;
    const int64_t longest = search->plan->longest[work->sentence], count = select_best(search, work, values);
    const int64_t wanted = work->greedy < 0 ? -1 : work->greedy * W;
    int64_t live = 0;
    double most = -INFINITY;
    work->greedy = -1;
    work->beside = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t parent = search->chosen[i] / W, token = tokens[search->chosen[i]];
        if (token == END || longest <= T) {
            finish(search, work, parent, token, search->ranks[i]);
            continue;
        }
        int32_t *ancestors = work->spare + live * (T + 1);
        memcpy(ancestors, work->ancestors + parent * T, (size_t)T * sizeof(int32_t));
        ancestors[T] = (int32_t)live;
        work->tokens[live * L + T] = (int32_t)token;
        work->sums[live] = search->ranks[i];
        most = search->ranks[i] > most ? search->ranks[i] : most;
        if (search->chosen[i] == wanted) {
            work->greedy = live;
            work->beside = i == W;
        }
        live++;
    }
    int32_t *before = work->ancestors;
    work->ancestors = work->spare;
    work->spare = before;
    work->length++;
    work->live = live;
    /* Log-probabilities only fall, so a live hypothesis can at best keep its present one up to the longest length. */
    const double worst = search->finished->scores[(work->sentence + 1) * search->plan->n_best - 1];
    return live && most / search->plan->penalties[longest] > worst;
}

/* The likeliest tokens after one row, if need be of its sentence's list alone. */
static void rate_row(const Search *search, const Work *work, const float *logits, float *values, int64_t *tokens) {
    const Plan *plan = search->plan;
    const int64_t first_allowed = work->length == 1 ? END + 1 : END;
    if (!plan->ids) {
        choose_best(logits, 1, search->how->output.outputs, plan->beam, first_allowed, values, tokens);
        return;
    }
    const int32_t *list = plan->lists + plan->starts[work->sentence];
    const int64_t count = plan->starts[work->sentence + 1] - plan->starts[work->sentence];
    for (int64_t i = 0; i < count; i++) search->listed[i] = logits[list[i]];
    choose_best(search->listed, 1, count, plan->beam, first_allowed, values, tokens);
    for (int64_t i = 0; i < plan->beam; i++) tokens[i] = plan->ids[list[tokens[i]]];
}

/* The likeliest tokens after each row, and their log-probabilities. */
static void rate(const Search *search, const float *states, int64_t rows) {
    const Linear *output = &search->how->output;
    const int64_t W = search->plan->beam, V = output->outputs;
    const Work *work = search->works;
    int64_t left = work->live;
    for (int64_t start = 0; start < rows; start += TOGETHER) {
        const int64_t count = rows - start < TOGETHER ? rows - start : TOGETHER;
        apply_linear(output, states + start * output->inputs, count, search->logits, search->desk.bytes,
                     search->desk.scales);
        for (int64_t r = 0; r < count; r++, left--) {
            if (!left) left = (++work)->live;
            const int64_t best = (start + r) * W;
            rate_row(search, work, search->logits + r * V, search->values + best, search->tokens + best);
        }
    }
}

/* Read one more position of every sentence at work; return how many rows that were, or -1. */
static int64_t read_on(const Search *search, int64_t working) {
    const int64_t D = search->how->layer->joint.inputs, L = search->how->caches.room;
    int64_t rows = 0;
    for (int64_t i = 0; i < working; i++) {
        const Work *work = search->works + i;
        const float *position = search->plan->positions + (work->length - 1) * D;
        search->readers[i] = (Reader){work->place, work->sentence, work->live, work->length, work->ancestors};
        for (int64_t w = 0; w < work->live; w++)
            embed(search->how, search->desk.x + rows++ * D, work->tokens[w * L + work->length - 1], position);
    }
    const float *states = read_positions(search->how, &search->desk, search->readers, working, search->plan->mask);
    if (!states) return -1;
    rate(search, states, rows);
    return rows;
}

/* Extend every sentence at work; one that is done gives its place to the next that waits. Return how many go on. */
static int64_t extend_all(const Search *search, int64_t working, int64_t *waiting) {
    int64_t first = 0, going = 0;
    for (int64_t i = 0; i < working; i++) {
        Work *work = search->works + i;
        const int64_t rows = work->live;
        int goes_on = extend(search, work, search->values + first, search->tokens + first);
        first += rows * search->plan->beam;
        if (!goes_on && *waiting < search->plan->sentences) {
            begin(search, work, (*waiting)++);
            goes_on = 1;
        }
        if (!goes_on) continue;
        const Work moved = *work;
        *work = search->works[going];
        search->works[going++] = moved;
    }
    return going;
}

/* Take a piece of the room, in whole cache lines; without a room only count. */
static void *take(char *room, size_t *used, size_t bytes) {
    void *piece = room ? room + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return piece;
}

/* Share the room out; return how much is needed. */
static size_t lay_out(Search *search, char *room) {
    const size_t A = (size_t)search->plan->at_once, W = (size_t)search->plan->beam, L = (size_t)search->how->caches.room;
    const size_t C = (size_t)search->how->caches.places, V = (size_t)search->how->output.outputs;
    size_t used = 0;
    search->works = take(room, &used, A * sizeof(Work));
    search->readers = take(room, &used, A * sizeof(Reader));
    search->logits = take(room, &used, TOGETHER * V * sizeof(float));
    search->listed = take(room, &used, V * sizeof(float));
    search->values = take(room, &used, A * C * W * sizeof(float));
    search->tokens = take(room, &used, A * C * W * sizeof(int64_t));
    search->ranks = take(room, &used, C * sizeof(double));
    search->chosen = take(room, &used, C * sizeof(int64_t));
    for (size_t a = 0; a < A; a++) {
        Work work = {.place = (int64_t)a};
        work.tokens = take(room, &used, C * L * sizeof(int32_t));
        work.ancestors = take(room, &used, C * L * sizeof(int32_t));
        work.spare = take(room, &used, C * L * sizeof(int32_t));
        work.sums = take(room, &used, C * sizeof(double));
        if (room) search->works[a] = work;
    }
    return used;
}

/* Search B sentences whose memory is kept; the caches have at_once sentences of C = W + 1 places. */
int search_beams(const Stack *how, const Plan *plan, const Finished *finished) {
    Search search = {.how = how, .plan = plan, .finished = finished};
    char *room = aligned_alloc(64, lay_out(&search, NULL));
    int64_t waiting = 0, working = 0, rows = 0;
    if (room && !set_up(&search.desk, how, plan->at_once * how->caches.places)) {
        lay_out(&search, room);
        while (working < plan->at_once && waiting < plan->sentences) begin(&search, search.works + working++, waiting++);
        while (working && (rows = read_on(&search, working)) >= 0) working = extend_all(&search, working, &waiting);
    } else {
        rows = -1;
    }
    free(search.desk.x);
    free(room);
    return rows < 0;
}
