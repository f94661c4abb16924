/* names.c: words to operands: registers by number, variables by place, constants once. */
#include "tests/cuda/ptx/decode.h"

#include <string.h>

void ptx_refuse(const decoding *d, word w, const char *why)
{
    (void)ptx_fail("%.*s, line %u of its PTX: %s '%.*s'", (int)d->f->name_length, d->f->name,
                   d->r.line, why, (int)w.length, w.at);
}

bool ptx_good(void)
{
    return ptx_error[0] == '\0';
}

word ptx_word(decoding *d)
{
    word w;
    (void)ptx_next(&d->r, &w);
    return w;
}

bool ptx_meets(decoding *d, const char *sign)
{
    const reader here = d->r;
    if (ptx_is(ptx_word(d), sign))
        return true;
    d->r = here;
    return false;
}

void ptx_expect(decoding *d, const char *sign)
{
    const word w = ptx_word(d);
    if (!ptx_is(w, sign))
        ptx_refuse(d, w, sign[0] == ';' ? "more operands than are known:" : "unexpected");
}

static bool is_same(const char *a, uint32_t length, word b)
{
    return length == b.length && memcmp(a, b.at, length) == 0;
}

static operand constant(decoding *d, uint64_t value)
{
    function *f = d->f;
    for (uint32_t k = 0; k < f->constant_count && k < 64; k++)
        if (f->constants[k][0].u64 == value)
            return ~(operand)(SPECIALS + k);
    if (!ptx_more(&f->constants, f->constant_count, &d->constant_room, sizeof *f->constants))
        return ~(operand)ZERO;
    for (int l = 0; l < LANES; l++)
        f->constants[f->constant_count][l].u64 = value;
    return ~(operand)(SPECIALS + f->constant_count++);
}

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
        const bool alone = s->count == 0 && is_same(s->prefix, s->length, w);
        if (alone || (numbered && number < s->count &&
                      is_same(s->prefix, s->length, (word){w.at, digits}))) {
            *to = (operand)(s->first + (alone ? 0 : number));
            return true;
        }
    }
    return false;
}

static bool is_special(decoding *d, word w, operand *to)
{
    static const char *const names[] = {[TID_X] = "%tid.x",
                                        [NTID_X] = "%ntid.x",
                                        [CTAID_X] = "%ctaid.x",
                                        [CTAID_Y] = "%ctaid.y",
                                        [NCTAID_X] = "%nctaid.x"};
    for (int k = 0; k < ZERO; k++)
        if (ptx_is(w, names[k])) {
            *to = ~(operand)k;
            d->f->counts_blocks |= k == NCTAID_X;
            return true;
        }
    return false;
}

void ptx_add_variable(decoding *d, word type)
{
    variable v;
    uint32_t align;
    if (!ptx_declare(&d->r, type, &v, &align) ||
        !ptx_more(&d->variables, d->variable_count, &d->variable_room, sizeof v))
        return;
    v.space = LOCAL;
    v.offset = (d->bytes + align - 1) / align * align;
    d->bytes = v.offset + v.bytes;
    d->variables[d->variable_count++] = v;
}

const variable *ptx_variable(decoding *d, word w)
{
    for (uint32_t k = d->variable_count; k-- > 0;)
        if (is_same(d->variables[k].name, d->variables[k].length, w))
            return &d->variables[k];
    return NULL;
}

/* A register, a number, or the address of what lies at the same one in each lane. */
operand ptx_take(decoding *d, word w)
{
    operand to = ~(operand)ZERO;
    uint64_t value;
    if (is_register(d, w, &to) || is_special(d, w, &to))
        return to;
    if (ptx_number(w, &value))
        return constant(d, value);
    const variable *v = ptx_variable(d, w);
    if (v != NULL)
        return constant(d, v->offset);
    const symbol *s = ptx_symbol(d->f->module, w.at, w.length);
    if (s != NULL) // what is asked for at the launch lies behind what is declared
        return constant(d, !s->is_shared   ? (uint64_t)(uintptr_t)s->data
                           : s->bytes == 0 ? (d->f->module->shared_bytes + 15) / 16 * 16
                                           : s->offset);
    ptx_refuse(d, w, w.length > 0 && w.at[0] == '%' ? "unknown register" : "unknown operand");
    return to;
}

/* {a, b}, or one alone; of registers where it is written */
uint8_t ptx_take_vector(decoding *d, operand *list, bool writes)
{
    const bool many = ptx_meets(d, "{");
    uint8_t count = 0;
    do {
        const word w = ptx_word(d);
        list[count] = ptx_take(d, w);
        if (writes && list[count] < 0)
            ptx_refuse(d, w, "a register is expected, not");
        count++;
    } while (many && count < MAX_VECTOR && ptx_meets(d, ","));
    if (many)
        ptx_expect(d, "}");
    return count;
}

/* [register + 4], [name], [name + 8] */
void ptx_take_address(decoding *d, instruction *i)
{
    uint64_t value = 0;
    ptx_expect(d, "[");
    const word w = ptx_word(d);
    const variable *v = ptx_variable(d, w);
    if (v != NULL)
        i->space = (uint8_t)v->space;
    i->a = ptx_take(d, w);
    if (ptx_meets(d, "+") && !ptx_number(ptx_word(d), &value))
        ptx_refuse(d, w, "unknown offset from");
    i->offset = (int64_t)value;
    ptx_expect(d, "]");
}

uint32_t ptx_label(decoding *d, word w)
{
    for (uint32_t k = d->first_label; k < d->label_count; k++)
        if (is_same(d->labels[k].name.at, d->labels[k].name.length, w))
            return k;
    if (!ptx_more(&d->labels, d->label_count, &d->label_room, sizeof *d->labels))
        return d->first_label;
    d->labels[d->label_count] = (label){w, NOWHERE};
    return d->label_count++;
}
