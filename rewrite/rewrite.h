/* rewrite.h: how a graph is changed: pass, rule, edit, report.
 *
 * A pass is a file that ends in its descriptor. It gets an edit: the graph, a scratch arena that
 * goes when the pass returns, its options, and the report. It changes the graph only through edit.c
 * and build.h, which stamp provenance ("ebb.pass"), and it says for each site that it looked at
 * whether it was applied or why not. After it returns, the pipeline verifies, sweeps dead nodes and
 * weighs.
 *
 * What a pass must preserve: a legal graph; names of graph inputs, outputs and initializers; its
 * exactness. A second run finds nothing to do.
 */
#pragma once

#include "onnx/graph/build.h"

typedef enum ebb_exactness {
    EBB_EXACT,    /* bit-equal to the graph before it */
    EBB_ROUNDING, /* the same mathematics, rounded elsewhere */
    EBB_LOSSY,    /* an error or bias, stated and measured */
    EBB_MAKES,    /* changes what is computed by design: loss, gradient, optimizer, train-mode */
} ebb_exactness;

typedef enum ebb_option_kind {
    EBB_OPTION_INT,
    EBB_OPTION_FLOAT,
    EBB_OPTION_STRING,
    EBB_OPTION_CHOICE,
    EBB_OPTION_BYTES, /* 6GiB, 512MB, 80%: what ebb_amount_parse takes */
} ebb_option_kind;

typedef struct ebb_option {
    const char *name;
    ebb_option_kind kind;
    const char
        *otherwise; /* default, as text; NULL: none, the option is required or optional by doc */
    const char *choices; /* of a CHOICE: "a|b|c"; of a number its range: "[0, 1)", NULL: any */
    const char *doc;     /* one line */
} ebb_option;

typedef struct ebb_edit ebb_edit;

/* What a site of a pass would change, for the joint planner. Bytes of one step. */
typedef struct ebb_offer {
    ebb_value value; /* the stored tensor that it shrinks or drops; none: it saves within nodes */
    int64_t saved_bytes;     /* less to keep between forward and backward; <= 0 is worth nothing */
    int64_t transient_bytes; /* more alive while it encodes or decodes */
    double added_ns;         /* longer step (ebb_roofline_ns); negative: shorter */
    double error;            /* bound on the relative error of a gradient; 0: exact or rounding */
} ebb_offer;

/* When a pass is run, and why: the table of contents of a pipeline. What a text names after its phase
 * is moved there for PARAMETERS and COMPUTATION alone: the gradient follows only changes of the primal,
 * which is what reverse mode calls the graph that it derives, that are there before it. */
typedef enum ebb_pass_phase {
    EBB_PHASE_FLATTEN,     /* one flat graph of today's operators: every step begins with it */
    EBB_PHASE_PRIMAL,      /* what is computed: modes of training, the loss */
    EBB_PHASE_PARAMETERS,  /* what there is to train; before what changes how it is read */
    EBB_PHASE_COMPUTATION, /* in which layout and precision */
    EBB_PHASE_GRADIENT,    /* the backward and the update */
    EBB_PHASE_SPEED,       /* operators joined for a faster kernel */
    EBB_PHASE_MEMORY,      /* techniques: less is kept between forward and backward */
    EBB_PHASE_BUDGET,      /* order and repetition of nodes */
    EBB_PHASE_TIDY,        /* what every step ends with */
} ebb_pass_phase;

typedef struct ebb_pass {
    const char *name;  /* "sign-mask" */
    const char *doc;   /* one line */
    const char *paper; /* the published technique, or NULL */
    ebb_exactness exactness;
    const ebb_option *options; /* ends with a NULL name; NULL: none */
    ebb_status (*run)(ebb_edit *e);
} ebb_pass;

/* ---- report.c: what happened ---- */

typedef struct ebb_skip {
    const char *reason; /* a full clause: "the backward reads y for another reason" */
    size_t count;
    char **nodes; /* labels of the first few */
    size_t node_count;
} ebb_skip;

typedef struct ebb_left_out { /* a weight that is not trained */
    const char *name, *why;
} ebb_left_out;

typedef struct ebb_training { /* what pass gradient chose, of what looks like a weight */
    const char *said;         /* a sentence */
    size_t trained, weights;
    size_t lost; /* trained, though an export took mark and name of a parameter */
    int64_t trained_elements, elements;
    ebb_left_out *left_out; /* weights - trained of them */
} ebb_training;

typedef struct ebb_report { /* one pass's; model lifetime of the pipeline's report arena */
    const char *pass;
    ebb_exactness exactness;
    size_t found, applied;
    bool holds; /* what was asked for is true of the step, though nothing may have been applied: a
                   budget. Then that is no failure under `strict` */
    ebb_skip *skips;
    size_t skip_count, skip_capacity;
    char **notes; /* sentences for the user: "BatchNormalization 'bn1' set to training mode" */
    size_t note_count, note_capacity;
    int64_t saved_bytes;                          /* of the values that backward reads */
    uint64_t peak_before_bytes, peak_after_bytes; /* 0: not yet weighable (no static shapes) */
    int64_t ns;
    size_t nodes_before, nodes_after;
    const ebb_training *training; /* of pass gradient, where it chose by itself; else NULL */
} ebb_report;

/* ---- edit.c: the only way a pass changes a graph ---- */

struct ebb_edit {
    ebb_graph *g;
    const ebb_pass *pass;
    const struct ebb_option_value {
        const char *name, *value;
    } * options; /* as given; look up with ebb_option_* */
    size_t option_count;
    ebb_arena *scratch; /* gone when the pass returns */
    ebb_arena *keep;    /* the report's */
    ebb_report *report;
    /* Who decides about offers; NULL: all are taken. The answer: NULL, or why not, a full clause
     * that outlives the report. */
    const char *(*decides)(void *context, const ebb_pass *pass, ebb_node site,
                           const ebb_offer *offer);
    void *context;
};

#define EBB_SCRATCH(e, type, count) EBB_NEW((e)->scratch, type, (count))

/* A builder that puts nodes before `before` in the given phase (NONE: that of `before`). */
ebb_build ebb_edit_build(ebb_edit *e, ebb_node before, ebb_phase phase);
/* One for what takes the place of n: before it, in its phase, named after it. */
ebb_build ebb_edit_build_for(ebb_edit *e, ebb_node n);
ebb_status ebb_edit_replace(ebb_edit *e, ebb_value old, ebb_value with); /* also takes over a graph
                                 output's name; the names of outputs never change */
void ebb_edit_remove(ebb_edit *e, ebb_node n);
/* Both: `with` stands for the first output of n, which goes. */
ebb_status ebb_edit_swap(ebb_edit *e, ebb_node n, ebb_value with);

void ebb_found(ebb_edit *e);
void ebb_applied(ebb_edit *e);
/* Leave to apply at a site that was found and could be rewritten. An ordinary run always gives it, unless the
 * offer is of a value that moves between places (ebb_value_is_moved): that has no bytes here to be saved.
 * The joint planner runs a pass twice: first it listens, takes the offers down and refuses all;
 * then it lets through those that it chose. A refused site is reported as skipped, and must be left
 * as it is. Ask exactly once a site, in the same order in every run on the same graph. */
bool ebb_offered(ebb_edit *e, ebb_node site, const ebb_offer *offer);
/* Found and not applied. reason is a literal; sites are counted by it. n may be none. */
ebb_status ebb_skipped(ebb_edit *e, ebb_node n, const char *reason);
ebb_status ebb_note(ebb_edit *e, const char *format, ...) EBB_PRINTF(2, 3);

/* Options, given or default. The pipeline has checked names, kinds and choices before the run. */
int64_t ebb_option_int(const ebb_edit *e, const char *name);
double ebb_option_float(const ebb_edit *e, const char *name);
const char *ebb_option_string(const ebb_edit *e,
                              const char *name); /* NULL: not given, no default */
bool ebb_option_given(const ebb_edit *e, const char *name);
/* An amount in bytes, a share being of `whole`; 0: not given, no default. */
ebb_status ebb_option_bytes(const ebb_edit *e, const char *name, uint64_t whole, uint64_t *bytes);

/* Glob with * and ?, as --train and --freeze take them; several are separated by , ; or space. */
bool ebb_glob(const char *pattern, const char *text);
/* The same, and a pattern may be the last part of a dotted name: bias of fc1.bias. */
bool ebb_glob_part(const char *pattern, const char *name);

/* ---- match.c and engine.c: rules ---- */

/* A rule: pattern and replacement in ONNX text (node lists; "y = Mul(x, s)"). Names in the pattern
 * bind values; a commutative op fits either way; a number (0.5) fits a constant of that value
 * within 1e-6 relative; attributes given must be equal, others may be anything; values inside the
 * pattern must have no use outside it. Each node stands before its users, and the last one's first
 * output is the root. Inputs beyond those of the pattern may be there, unless the op commutes. */
typedef struct ebb_match {
    ebb_graph *g;
    const char *const *names; /* bound names ... */
    const ebb_value *values;  /* ... and what they stand for */
    size_t count;
    const ebb_node *nodes; /* the pattern's nodes, in its order */
    size_t node_count;
} ebb_match;

ebb_value ebb_match_value(const ebb_match *m, const char *name); /* none: not bound */

typedef struct ebb_rule {
    const char *name;
    const char *pattern;
    const char *replace;                         /* one node; NULL: `build` makes it */
    const char *(*declines)(const ebb_match *m); /* NULL or NULL result: go on; else the reason */
    void (*build)(ebb_build *b, const ebb_match *m, ebb_value *root); /* where replace is NULL */
} ebb_rule;

/* Applies the rules until quiet, with fuel of (nodes x rules) so that it always stops. */
ebb_status ebb_rules_apply(ebb_edit *e, const ebb_rule *rules, size_t count);

/* ---- the roll: passes/passes.def ---- */

const ebb_pass *const *ebb_passes(size_t *count);
const ebb_pass *ebb_pass_find(const char *name);

ebb_pass_phase ebb_pass_phase_of(const ebb_pass *pass);
const char *ebb_pass_room(const ebb_pass *pass); /* "memory/exact" */
/* The pass whose offers have this priority, from 1 on; NULL beyond the last. */
const ebb_pass *ebb_pass_offering(int priority);
/* It is run before the gradient, wherever it is named. */
bool ebb_pass_moves(const ebb_pass *pass);
/* It asks ebb_offered at each site: the joint planner may choose among them. */
bool ebb_pass_offers(const ebb_pass *pass);
/* No technique, but what every step is brought into order with: that there was nothing to do is no
 * failure under `strict`. */
bool ebb_pass_tidies(const ebb_pass *pass);
