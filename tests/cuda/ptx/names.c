/* names.c: words to operands: registers by number, variables by place, constants once. */
#include "tests/cuda/ptx/decode.h"

#include <stdlib.h>
#include <string.h>

bool ptx_more(void *list, uint32_t count, uint32_t *room, size_t size)
{
    void **at = list;
    if (count < *room)
        return true;
    const uint32_t bigger = *room == 0 ? 64 : 2 * *room;
    void *grown = realloc(*at, bigger * size);
    if (grown == NULL)
        return ptx_fail("no memory");
    *at = grown;
    *room = bigger;
    return true;
}

bool ptx_refuse(const decoding *d, word w, const char *why)
{
    return ptx_fail("%.*s, line %u of its PTX: %s '%.*s'", (int)d->f->name_length, d->f->name,
                    d->r.line, why, (int)w.length, w.at);
}

static bool ptx_put_constant(decoding *d, uint64_t value, operand *to)
{
    function *f = d->f;
    for (uint32_t k = 0; k < f->constant_count && k < 64; k++)
        if (f->constants[k][0].u64 == value) {
            *to = ~(operand)(SPECIALS + k);
            return true;
        }
    if (!ptx_more(&f->constants, f->constant_count, &d->constant_room, sizeof *f->constants))
        return false;
    for (int l = 0; l < LANES; l++)
        f->constants[f->constant_count][l].u64 = value;
    *to = ~(operand)(SPECIALS + f->constant_count++);
    return true;
}

static const struct {
    const char *name;
    special special;
} specials[] = {{"%tid.x", TID_X},       {"%ntid.x", NTID_X},     {"%ctaid.x", CTAID_X},
                {"%ctaid.y", CTAID_Y},   {"%ctaid.z", CTAID_Z},   {"%nctaid.x", NCTAID_X},
                {"%nctaid.y", NCTAID_Y}, {"%nctaid.z", NCTAID_Z}, {"%laneid", LANEID},
                {"%warpid", WARPID}};

static bool is_register(const decoding *d, word w, operand *to)
{
    uint32_t digits = w.length;
    uint64_t number = 0;
    while (digits > 1 && w.at[digits - 1] >= '0' && w.at[digits - 1] <= '9')
        digits--;
    const bool numbered =
        digits < w.length && ptx_number((word){w.at + digits, w.length - digits}, &number);
    for (uint32_t k = d->set_count; k-- > 0;) {
        const registers *s = &d->sets[k];
        if (s->count == 0 && s->length == w.length && memcmp(s->prefix, w.at, w.length) == 0) {
            *to = (operand)s->first;
            return true;
        }
        if (s->count > 0 && numbered && s->length == digits &&
            memcmp(s->prefix, w.at, digits) == 0 && number < s->count) {
            *to = (operand)(s->first + number);
            return true;
        }
    }
    return false;
}

const variable *ptx_frame_variable(const decoding *d, word w)
{
    for (uint32_t k = d->variable_count; k-- > 0;)
        if (d->variables[k].length == w.length && memcmp(d->variables[k].name, w.at, w.length) == 0)
            return &d->variables[k];
    return NULL;
}

static const variable *entry_param(const decoding *d, word w)
{
    const function *f = d->f;
    for (uint32_t k = 0; f->is_entry && k < f->param_count; k++)
        if (f->params[k].length == w.length && memcmp(f->params[k].name, w.at, w.length) == 0)
            return &f->params[k];
    return NULL;
}

/* A register, a number, or the address of what lies at the same one in each lane. */
bool ptx_take(decoding *d, word w, operand *to)
{
    uint64_t value;
    if (w.length > 0 && w.at[0] == '%') {
        if (is_register(d, w, to))
            return true;
        for (size_t k = 0; k < sizeof specials / sizeof *specials; k++)
            if (ptx_is(w, specials[k].name)) {
                *to = ~(operand)specials[k].special;
                d->f->counts_blocks |= specials[k].special == NCTAID_X;
                return true;
            }
        return ptx_refuse(d, w, "unknown register");
    }
    if (is_register(d, w, to)) // temp_param_reg
        return true;
    if (ptx_number(w, &value))
        return ptx_put_constant(d, value, to);
    const variable *v = entry_param(d, w);
    if (v != NULL)
        return ptx_put_constant(d, v->offset, to);
    const symbol *s = ptx_symbol(d->f->module, w.at, w.length);
    if (s != NULL) // what is asked for at the launch lies behind what is declared
        return ptx_put_constant(d,
                                !s->is_shared   ? (uint64_t)(uintptr_t)s->data
                                : s->bytes == 0 ? (d->f->module->shared_bytes + 15) / 16 * 16
                                                : s->offset,
                                to);
    return ptx_refuse(d, w, "unknown operand");
}

bool ptx_expect(decoding *d, const char *sign)
{
    word w;
    if (ptx_next(&d->r, &w) && ptx_is(w, sign))
        return true;
    return ptx_refuse(d, w, sign[0] == ';' ? "more operands than are known:" : "unexpected");
}

bool ptx_next_operand(decoding *d, operand *to)
{
    word w;
    return ptx_next(&d->r, &w) && ptx_take(d, w, to);
}

/* {a, b} or one alone; `_` is written nowhere. */
bool ptx_take_vector(decoding *d, operand *list, uint32_t count, bool writes)
{
    word w;
    (void)ptx_next(&d->r, &w);
    if (!ptx_is(w, "{"))
        return count == 1 ? ptx_take(d, w, &list[0])
                          : ptx_refuse(d, w, "a vector is expected, not");
    for (uint32_t k = 0; k < count; k++) {
        (void)ptx_next(&d->r, &w);
        if (writes && ptx_is(w, "_"))
            list[k] = 0;
        else if (!ptx_take(d, w, &list[k]))
            return false;
        if (!ptx_expect(d, k + 1 < count ? "," : "}"))
            return false;
    }
    return true;
}

/* [register + 4], [name], [name + 8] */
bool ptx_take_address(decoding *d, instruction *i)
{
    word w;
    uint64_t value;
    if (!ptx_expect(d, "[") || !ptx_next(&d->r, &w))
        return false;
    const variable *v = ptx_frame_variable(d, w);
    i->a = ~(operand)ZERO;
    if (v != NULL) {
        i->in_frame = true;
        i->offset = v->offset;
        i->space = LOCAL;
    } else if (!ptx_take(d, w, &i->a)) {
        return false;
    }
    (void)ptx_next(&d->r, &w);
    if (ptx_is(w, "+")) {
        (void)ptx_next(&d->r, &w);
        if (!ptx_number(w, &value))
            return ptx_refuse(d, w, "unknown offset");
        i->offset += (int64_t)value;
        (void)ptx_next(&d->r, &w);
    }
    return ptx_is(w, "]") || ptx_refuse(d, w, "unexpected");
}

label *ptx_label_of(decoding *d, word w)
{
    if (2 * d->label_count + 2 > d->label_room) {
        const uint32_t room = d->label_room == 0 ? 256 : 4 * d->label_room;
        label *old = d->labels, *bigger = calloc(room, sizeof *bigger);
        if (bigger == NULL)
            return NULL;
        for (uint32_t k = 0; k < d->label_room; k++)
            if (old[k].name != NULL) {
                uint32_t at = ptx_hash(old[k].name, old[k].length) % room;
                while (bigger[at].name != NULL)
                    at = (at + 1) % room;
                bigger[at] = old[k];
            }
        free(old);
        d->labels = bigger;
        d->label_room = room;
    }
    uint32_t at = ptx_hash(w.at, w.length) % d->label_room;
    while (d->labels[at].name != NULL &&
           (d->labels[at].length != w.length || memcmp(d->labels[at].name, w.at, w.length) != 0))
        at = (at + 1) % d->label_room;
    if (d->labels[at].name == NULL) {
        d->labels[at] = (label){w.at, w.length, 0, false};
        d->label_count++;
    }
    return &d->labels[at];
}
