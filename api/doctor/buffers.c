/* buffers.c: what would be trained, and by its name or its values was not trained where it comes
 * from.
 *
 * PyTorch keeps parameters and buffers apart; in most files both are initializers, floating-point
 * ones alike. What gives a buffer away:
 *
 *   attn.inv_freq            the last part of its name is one that modules give to buffers
 *   bn1.running_mean         statistics that no BatchNormalization reads: a norm that its author
 *   bn1.weight, bn1.bias     froze (FrozenBatchNorm2d), whose scale and bias are buffers, too
 *   mask = {0, -inf, ...}    no parameter is infinite
 */
#include "api/doctor/doctor.h"

#include <string.h>

#include "passes/parameters/trainable.h"

enum { NAMES_SHOWN = 4, ELEMENTS_READ = 1 << 22 };

static bool is_infinite_somewhere(const ebb_graph *g, ebb_value v)
{
    const ebb_tensor *t = ebb_value_of(g, v)->tensor;
    int64_t count;
    if (t == NULL || t->data == NULL || t->type.dtype != EBB_F32 ||
        !ebb_type_elements(&t->type, &count) || count > ELEMENTS_READ)
        return false;
    const uint32_t infinity = 0x7F800000u;
    uint32_t bits, found = 0; // in a loop without branches: weights are many
    for (int64_t i = 0; i < count; i++) {
        memcpy(&bits, (const char *)t->data + (size_t)i * sizeof bits, sizeof bits);
        found |= (bits & 0x7FFFFFFFu) == infinity;
    }
    return found != 0;
}

/* Whether a buffer of statistics stands beside it: "bn1.running_var" beside "bn1.weight". */
static bool is_of_frozen_norm(ebb_doctor *d, const ebb_graph *g, const bool *trains,
                              const char *name)
{
    size_t length = (size_t)(ebb_last_part(name) - name);
    const char *beside =
        ebb_arena_printf(&d->arena, "%.*srunning_var", (int)(length < 4096 ? length : 4096), name);
    ebb_value v = beside != NULL && length > 0 ? ebb_value_find(g, beside) : EBB_NO_VALUE;
    return v.i != 0 && trains[v.i];
}

/* The pattern that freezes it: all of that name; of a frozen norm, all that the norm has. */
static const char *pattern_of(ebb_doctor *d, const char *name, bool by_name)
{
    const char *part = ebb_last_part(name);
    if (ebb_name_is_of_statistic(part) || !by_name)
        return ebb_arena_printf(&d->arena, "%.*s%s", (int)(part - name), name,
                                ebb_name_is_of_statistic(part) ? "*" : part);
    return ebb_arena_printf(&d->arena, "%s%s", part == name ? "" : "*",
                            part == name ? name : part - 1);
}

/* list, with another item behind it where it has none such. */
static const char *with(ebb_doctor *d, const char *list, const char *item, const char *between)
{
    size_t length = strlen(item);
    for (const char *at = strstr(list, item); at != NULL; at = strstr(at + 1, item))
        if ((at == list || at[-1] == ';') && (at[length] == '\0' || at[length] == ';'))
            return list;
    return ebb_arena_printf(&d->arena, "%s%s%s", list, list[0] != '\0' ? between : "", item);
}

ebb_status ebb_doctor_buffers(ebb_doctor *d, const ebb_graph *g, const bool *trains)
{
    size_t count = 0;
    const char *names = "", *patterns = "";
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const char *name = ebb_value_name(g, v);
        if (!trains[v.i])
            continue;
        bool by_name = ebb_name_is_of_buffer(ebb_last_part(name));
        bool of_norm = !by_name && is_of_frozen_norm(d, g, trains, name);
        if (!by_name && !of_norm && !is_infinite_somewhere(g, v))
            continue;
        const char *quoted = ebb_arena_printf(&d->arena, "'%.200s'", name);
        const char *pattern = of_norm ? "" : pattern_of(d, name, by_name);
        EBB_GOT(quoted && pattern);
        if (count++ < NAMES_SHOWN)
            names = with(d, names, quoted, ", ");
        if (pattern[0] != '\0')
            patterns = with(d, patterns, pattern, ";");
        EBB_GOT(names && patterns);
    }
    if (count == 0)
        return NULL;
    ebb_finding *f = ebb_doctor_add(d, EBB_WARNING, "buffers");
    EBB_GOT(f);
    f->count = count;
    f->what = ebb_arena_printf(&d->arena,
                               "the file does not say that they are buffers, which PyTorch does "
                               "not train, but their names or values do: %s%s",
                               names, count > NAMES_SHOWN ? " ..." : "");
    f->help = ebb_arena_printf(&d->arena, "--freeze '%s'", patterns);
    return f->what != NULL && f->help != NULL ? NULL : ebb_error_memory();
}
