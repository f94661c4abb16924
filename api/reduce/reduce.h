/* reduce.h: the smallest model that still fails.
 *
 *   best ── copy ── change.c: less of something ── loose ends tied ── does it still fail? ── best
 *
 * Delta debugging (Zeller and Hildebrandt, 2002) over nodes: large pieces first, then smaller ones.
 * What a kept node reads from one that went becomes an input of the graph; what it made for one
 * becomes an output. Then outputs, operands, attributes, weights and sizes, and again until nothing
 * goes. The order is fixed and nothing is drawn, so the result is the same in every run as far as
 * the test is.
 */
#pragma once

#include "api/api.h"

/* ---- failing.c: criteria of the library's own ---- */

typedef struct ebb_failure {
    ebb_code code;
    const char *sentence; /* without what was being done, and hints; arena memory */
    ebb_status status;    /* the error itself, good until 64 later ones */
    const char *match;    /* what another one must contain; NULL: see ebb_failure_same */
} ebb_failure;

/* How the model fails; code EBB_OK: it does not. The model is changed. */
ebb_status ebb_failure_find(ebb_failure *failure, const ebb_reduce_options *o, ebb_model *model,
                            ebb_arena *arena);
/* Of the same code, and says nothing but what `first` said, names and numbers apart: a list may
 * have become shorter. With match: contains it. */
bool ebb_failure_same(const ebb_failure *first, const ebb_failure *other);
/* NULL, or EBB_USAGE with the criteria that there are. */
ebb_status ebb_failure_known(const char *criterion);

/* ---- search.c ---- */

typedef struct ebb_reducer {
    const ebb_reduce_options *options;
    ebb_model **kept; /* the last is the best; those before it own bytes that it reads */
    size_t count, capacity;
    ebb_failure failure; /* of the whole model, where the criterion is the library's */
    bool typed;          /* the whole model's types agree: so must those of its parts */
    size_t tests, limit; /* limit 0: none */
    const char *stage;
    ebb_arena arena;
} ebb_reducer;

/* Changes a copy. *applies: there was something to change. `at` and `size`: which of what there is.
 */
typedef ebb_status (*ebb_change)(ebb_model *copy, size_t at, size_t size, bool *applies);

static inline ebb_model *ebb_reduce_best(const ebb_reducer *r)
{
    return r->kept[r->count - 1];
}

/* Whether a model still fails; it stays as it is. */
ebb_status ebb_reduce_test(ebb_reducer *r, const ebb_model *model, bool *still);
/* All stages, until a whole round takes nothing. */
ebb_status ebb_reduce_search(ebb_reducer *r);

/* ---- change.c ---- */

ebb_status ebb_less_nodes(ebb_model *copy, size_t at, size_t size, bool *applies);
/* The same, but what a kept node reads from them becomes a weight of ones instead of an input: so
 * the model still has something to train. */
ebb_status ebb_less_before_weights(ebb_model *copy, size_t at, size_t size, bool *applies);
ebb_status ebb_less_outputs(ebb_model *copy, size_t at, size_t size, bool *applies);
ebb_status ebb_less_steps(ebb_model *copy, size_t at, size_t size,
                          bool *applies); /* update bindings */
/* operands: node `at` loses the operand that stands `size` places before its last one. between: the node goes, and
 * its readers read its operand `size` instead. */
ebb_status ebb_less_operands(ebb_model *copy, size_t at, size_t size, bool *applies);
ebb_status ebb_less_between(ebb_model *copy, size_t at, size_t size, bool *applies);
ebb_status ebb_less_attributes(ebb_model *copy, size_t at, size_t size, bool *applies);
ebb_status ebb_less_initializers(ebb_model *copy, size_t at, size_t size, bool *applies);
ebb_status ebb_less_functions(ebb_model *copy, size_t at, size_t size, bool *applies);
ebb_status ebb_less_said(ebb_model *copy, size_t at, size_t size, bool *applies); /* metadata */

/* Inputs for what nobody makes, outputs for what nobody reads any more, nothing for what is unused.
 * made: by value id, what had a reader before. *possible: false where a type is not known. */
ebb_status ebb_reduce_tie(ebb_graph *g, const bool *had_readers, size_t count, bool *possible);

/* ---- sizes.c ---- */

/* All dims of size `at` become `size`. */
ebb_status ebb_less_size(ebb_model *copy, size_t at, size_t size, bool *applies);
/* The largest size below `below` of all that inference does not tell; 0: none above 1. */
int64_t ebb_reduce_next_size(const ebb_graph *g, int64_t below);
