/* detached_lost.c: what of detach() is lost and can only be told.
 *
 *   straight through   x + (q - x), or q + x - x, in files that may have lost one: taken to have been detached
 *   joined             the exporter's optimiser made one of two values that a detach() told apart
 *   dropped            a call reads what detach() gave, and detached.c does not know which operand it was
 */
#include "passes/common.h"
#include "passes/mended/detached.h"
#include "passes/parameters/noted.h"

static const char *call_of(const ebb_graph *g, ebb_node n)
{
    return ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NOTED_CALL);
}

enum { DETACH_LENGTH = 64 };

/* The next "detach_3" that the call reads, from at on; NULL: none. */
static const char *read_detached(char name[DETACH_LENGTH], const char *at)
{
    while ((at = strstr(at, "%detach")) != NULL) {
        size_t length = strspn(++at, "abcdefghijklmnopqrstuvwxyz_0123456789");
        bool whole = strspn(at + 6, "_0123456789") == length - 6 && length < DETACH_LENGTH;
        if (whole) {
            memcpy(name, at, length);
            name[length] = '\0';
            return at + length;
        }
    }
    return NULL;
}

/* Whether there is the node of a call, "%detach_3 : [num_users=1] = ...", for all that read it. */
static bool is_kept(const ebb_graph *g, const char *name)
{
    size_t length = strlen(name);
    EBB_EACH_NODE(g, n) {
        const char *call = ebb_is_detach(g, n) ? call_of(g, n) : NULL;
        if (call != NULL && strncmp(call + 1, name, length) == 0 && call[length + 1] == ' ')
            return !ebb_ends_in(call, EBB_DETACH_RESTORED);
    }
    return false;
}

/* Whether a node of which `is` holds gives one of n's operands. */
static bool reads(const ebb_graph *g, ebb_node n, bool (*is)(const ebb_graph *, ebb_node))
{
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        const ebb_value v = ebb_in(g, n, i);
        const ebb_node by = v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
        if (by.i != 0 && is(g, by))
            return true;
    }
    return false;
}

static bool is_read_by_detach(const ebb_graph *g, ebb_value v)
{
    for (size_t i = 0; v.i != 0 && i < ebb_value_of(g, v)->use_count; i++)
        if (ebb_is_detach(g, ebb_value_of(g, v)->uses[i].node))
            return true;
    return false;
}

/* Whether the call reads "sub_2", and the node what the call of "sub_1" gave: the exporter's optimiser made one of
 * equal ones, after it had dropped what detach() told them apart by. */
static bool reads_another(const ebb_graph *g, ebb_node n, ebb_value v)
{
    const ebb_node by = v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
    const char *call = by.i != 0 && !ebb_is_detach(g, by) ? call_of(g, by) : NULL;
    const size_t length = call != NULL ? strcspn(call, " ") : 0,
                 stem = strcspn(call != NULL ? call : "", "0123456789 ");
    const char *own = call_of(g, n), *at = own != NULL ? strstr(own, "args = (") : NULL;
    bool similar = false;
    while (length > 1 && at != NULL && (at = strchr(at, '%')) != NULL) {
        const size_t name = strspn(at + 1, "abcdefghijklmnopqrstuvwxyz_0123456789") + 1;
        if (name == length && strncmp(at, call, length) == 0)
            return false;
        similar |= strncmp(at, call, stem) == 0 && strspn(at + stem, "_0123456789") == name - stem;
        at += name;
    }
    return similar;
}

/* It, or what its maker reads, is read by a detach, too. */
static bool is_beside_detach(const ebb_graph *g, ebb_value v)
{
    const ebb_node by = v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
    bool beside = is_read_by_detach(g, v);
    for (uint32_t k = 0; by.i != 0 && !beside && k < ebb_node_of(g, by)->in_count; k++)
        beside = is_read_by_detach(g, ebb_in(g, by, k));
    return beside;
}

/* The notes are asked first: all readers of a value are gone over for what they tell of alone. */
static size_t count_joined(const ebb_graph *g, ebb_node *first)
{
    size_t count = 0;
    EBB_EACH_NODE(g, n)
        for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
            const ebb_value v = ebb_in(g, n, i);
            if (reads_another(g, n, v) && is_beside_detach(g, v))
                *first = count++ == 0 ? n : *first;
        }
    return count;
}

/* Another difference of the same two: the loss of a codebook detaches one side of it. */
static bool is_taken_again(const ebb_graph *g, ebb_node n)
{
    const ebb_value q = ebb_in(g, n, 0), x = ebb_in(g, n, 1);
    const ebb_value_info *info = ebb_value_of(g, x);
    for (size_t i = 0; i < info->use_count; i++) {
        const ebb_node other = info->uses[i].node;
        const uint32_t slot = info->uses[i].slot;
        if (!ebb_same_node(other, n) && ebb_node_of(g, other)->op == EBB_OP_SUB && slot < 2 &&
            ebb_in(g, other, 1 - slot).i == q.i)
            return true;
    }
    return false;
}

static size_t count_straight_through(const ebb_graph *g, ebb_node *first, bool *again)
{
    size_t count = 0;
    *again = false;
    EBB_EACH_NODE(g, n)
        if (ebb_is_straight_through(g, n) || ebb_is_taken_off(g, n, true)) {
            *first = count++ == 0 ? n : *first;
            *again |= is_taken_again(g, n);
        }
    return count;
}

static size_t count_dropped(const ebb_graph *g, ebb_node *first)
{
    size_t count = 0;
    EBB_EACH_NODE(g, n) {
        char name[DETACH_LENGTH];
        const char *call = call_of(g, n), *at = call != NULL ? strstr(call, "args = (") : NULL;
        bool lost = false;
        at = reads(g, n, ebb_is_straight_through) ? NULL : at;
        while (at != NULL && !lost && (at = read_detached(name, at)) != NULL)
            lost = !is_kept(g, name) && !reads(g, n, ebb_is_detach);
        *first = lost && count == 0 ? n : *first;
        count += lost;
    }
    return count;
}

ebb_status ebb_detached_tell(ebb_detach_loss told[EBB_DETACH_LOSSES], const ebb_graph *g,
                             ebb_arena *arena)
{
    bool again;
    const size_t through = count_straight_through(g, &told[0].first, &again),
                 joined = count_joined(g, &told[1].first),
                 dropped = count_dropped(g, &told[2].first);
    if (through > 0)
        told[0].text = ebb_arena_printf(
            arena,
            "%zu difference%s q - x, to which x is added again, %s taken to have been detached, as "
            "straight-through estimators are written%s",
            through, through == 1 ? "" : "s", through == 1 ? "is" : "are",
            again ? "; the same difference is computed once more, as for the loss of a codebook, "
                    "which detaches one side of it: the file does not tell which, and gradients "
                    "pass both"
                  : "");
    if (joined > 0)
        told[1].text = ebb_arena_printf(arena,
                                        "%zu value%s the exporter made one with what detach() was "
                                        "given, or made of: gradients may pass where none did",
                                        joined, joined == 1 ? "" : "s");
    if (dropped > 0)
        told[2].text = ebb_arena_printf(arena,
                                        "%zu node%s what detach() gave in PyTorch, which the "
                                        "exporter dropped: gradients would pass there",
                                        dropped, dropped == 1 ? " reads" : "s read");
    const bool memory = (through == 0 || told[0].text != NULL) &&
                        (joined == 0 || told[1].text != NULL) &&
                        (dropped == 0 || told[2].text != NULL);
    return memory ? NULL : ebb_error_memory();
}
