/* unroll: bodies of If, Loop and Scan become nodes of the graph, so that all else works through
 * them.
 *
 *   before   y = If (c) <then_branch = {p}, else_branch = {q}>
 *   after    p                          c is a constant: only that branch is there
 *            y = Where (c, p, q)        c is known in the run alone, and p and q are alike
 *
 *   before   h, all = Loop (3, true, h0) <body = b (i, go, h) => (go, h2, out)>
 *   after    loop/0/h2 = b(0, h0)  loop/1/h2 = b(1, loop/0/h2)  h = b(2, loop/1/h2)
 *            all = Concat (Unsqueeze (loop/0/out), ...)
 *
 * A Loop's trip count must be known, or the condition in each copy; where the trip count is and the
 * condition is not, a copy's results count while the condition held: Where (go, new, old). Scan
 * runs as often as its inputs are long; they are split once, so that their gradient is put together
 * once.
 *
 * A loop of a known number of steps above `most` stays a loop, a Scan in one form (keep.h), which is run,
 * planned and differentiated as it is. One that was kept stays so until `most` is given.
 *
 * What is constant is folded before, between and after, since that is what decides; what a copy
 * brings is unrolled at once, since its shapes decide, too. They also tell what other runtimes' operators
 * stand for, which `inline` left: attention by tables of sines that an If on the length chooses (longrope).
 *
 * Exact but for faults: with Where both sides are computed, also one that divides integers by zero
 * or gathers where nothing is.
 */
#include "passes/flatten/control.h"
#include "passes/flatten/functions.h"
#include "passes/flatten/keep.h"
#include "passes/flatten/lift.h"
#include "passes/flatten/simplify.h"

static bool has_control(const ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
        if (ebb_unroll_control(g, n) != EBB_OP_UNKNOWN)
            return true;
    return false;
}

/* Those of this moment: what a body brings is looked at in the next round. */
static ebb_status round_of(ebb_unroll *u, size_t *applied, size_t *left)
{
    *left = 0;
    for (ebb_node n = ebb_first(u->g), next; n.i != 0; n = next) {
        const char *why;
        next = ebb_next(u->g, n);
        if (ebb_unroll_control(u->g, n) == EBB_OP_UNKNOWN)
            continue;
        if (ebb_keep_wants(u, n)) {
            bool changed;
            EBB_TRY(ebb_keep_node(u, n, &why, &changed));
            *applied += changed;
            if (why == NULL)
                continue;
        } else {
            EBB_TRY(ebb_unroll_node(u, n, &why));
        }
        if (why == NULL) {
            ++*applied;
            continue;
        }
        ++*left;
        EBB_TRY(ebb_skipped(u->e, n, why));
    }
    ebb_captures_mark(u->g);
    return NULL;
}

/* What a branch gives has its shape only now, and another runtime's operator may have asked for that. */
static ebb_status inline_rest(ebb_edit *e)
{
    const size_t skipped = e->report->skip_count;
    EBB_TRY(ebb_inline_all(e));
    e->report->skip_count = skipped; // what is left by it is not ours to say
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_unroll u = {.e = e, .g = e->g, .most = ebb_option_int(e, "most")};
    size_t applied = 0, left = 0, before;
    if (!has_control(e->g))
        return NULL;
    EBB_TRY(ebb_lift_within(&u));
    do {
        before = applied;
        EBB_TRY(ebb_fold_all(e));
        e->report->skip_count = 0; // what folding skipped is not ours to say
        EBB_TRY(round_of(&u, &applied, &left));
        if (applied != before)
            EBB_TRY(inline_rest(e));
    } while (applied != before);
    e->report->applied = applied;
    e->report->found = applied + left;
    return NULL;
}

// clang-format off
static const ebb_option options[] = {
    {"most", EBB_OPTION_INT, "1024", "[1, 1048576]", "copies of one body at most; a loop of more steps, of a known number of them, is kept as a loop"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_unroll = {
    .name = "unroll",
    .doc = "make nodes of the bodies of If, Loop and Scan; long loops stay loops",
    .exactness = EBB_EXACT,
    .options = options,
    .run = run,
};
