/* decode.c: a function's text to instructions: operands by form, labels as places.
 *
 * What is called lies where it is called, with names of its own: its parameters are the variables
 * that the caller put its arguments into, and its ret is a branch to its end.
 */
#include "tests/cuda/ptx/decode.h"

#include <stdlib.h>
#include <string.h>

static void read_body(decoding *d, const function *f, const variable *given, uint32_t count);

/* .reg .b32 %r<10>; or .reg .u32 a, b, c; */
static void add_registers(decoding *d)
{
    (void)ptx_word(d); // all are cells
    do {
        const word w = ptx_word(d);
        uint64_t count = 0;
        if (!ptx_more(&d->sets, d->set_count, &d->set_room, sizeof *d->sets))
            return;
        if (ptx_meets(d, "<")) {
            const word n = ptx_word(d);
            if (!ptx_number(n, &count) || count == 0 || count > 1u << 16)
                ptx_refuse(d, n, "unknown count of registers");
            ptx_expect(d, ">");
        }
        d->sets[d->set_count++] = (registers){w.at, w.length, d->registers, (uint32_t)count};
        d->registers += count > 0 ? (uint32_t)count : 1;
    } while (ptx_meets(d, ","));
    ptx_expect(d, ";");
}

/* .loc 1 66 0, function_name ..., inlined_at ...: the first two to the end of the line. */
static void read_place(decoding *d)
{
    const word file = ptx_word(d), line = ptx_word(d);
    uint64_t f, l;
    if (!ptx_number(file, &f) || !ptx_number(line, &l)) {
        ptx_refuse(d, line, "unknown place");
        return;
    }
    d->r.at += strcspn(d->r.at, "\n");
    if (l > 0)
        d->place = (uint32_t)f << 20 | (uint32_t)l;
}

static void read_directive(decoding *d, word w)
{
    if (ptx_is(w, ".loc")) {
        read_place(d);
    } else if (ptx_is(w, ".reg")) {
        add_registers(d);
    } else if (ptx_is(w, ".param") || ptx_is(w, ".local")) {
        ptx_add_variable(d, ptx_word(d));
        ptx_expect(d, ";");
    } else if (ptx_is(w, ".pragma")) { // unrolling is ptxas's
        (void)ptx_word(d);
        ptx_expect(d, ";");
    } else {
        ptx_refuse(d, w, "unknown directive");
    }
}

static void open_scope(decoding *d)
{
    if (d->depth == sizeof d->scopes / sizeof *d->scopes)
        ptx_refuse(d, (word){"{", 1}, "too deep a");
    else
        d->scopes[d->depth++] = (scope){d->variable_count, d->set_count, d->registers, d->bytes};
}

/* Names end with their scope, and so does their room. */
static void close_scope(decoding *d)
{
    if (d->depth == 0)
        return;
    const scope *s = &d->scopes[--d->depth];
    d->f->registers = d->registers > d->f->registers ? d->registers : d->f->registers;
    d->f->frame_bytes = d->bytes > d->f->frame_bytes ? d->bytes : d->f->frame_bytes;
    d->variable_count = s->variables;
    d->set_count = s->sets;
    d->registers = s->registers;
    d->bytes = s->bytes;
}

/* ---- functions that are called ---- */

enum { MOST_GIVEN = 8 };

/* (a, b), if there is such a list */
static void take_arguments(decoding *d, variable *given, uint32_t *count)
{
    if (!ptx_meets(d, "("))
        return;
    while (!ptx_meets(d, ")")) {
        const word w = ptx_word(d);
        const variable *v = ptx_variable(d, w);
        if (v == NULL || *count == MOST_GIVEN) {
            ptx_refuse(d, w, "unknown argument");
            return;
        }
        given[(*count)++] = *v;
        (void)ptx_meets(d, ",");
    }
}

/* call.uni (result), name, (a, b); */
static void read_call(decoding *d)
{
    variable given[MOST_GIVEN];
    uint32_t count = 0;
    take_arguments(d, given, &count);
    if (count > 0)
        ptx_expect(d, ",");
    const word name = ptx_word(d);
    const function *f = ptx_find(d->f->module, name.at, name.length);
    if (f == NULL)
        ptx_refuse(d, name, "a call of a function that is not there,");
    ptx_expect(d, ",");
    take_arguments(d, given, &count);
    ptx_expect(d, ";");
    if (ptx_good())
        read_body(d, f, given, count);
}

/* ---- instructions ---- */

static void read_register(decoding *d, operand *to)
{
    const word w = ptx_word(d);
    *to = ptx_take(d, w);
    if (*to < 0)
        ptx_refuse(d, w, "a register is expected, not");
}

/* d, a, b, c: operands; p, n, m: more of them; v: a vector; @: an address; signs are themselves. */
static void read_form(decoding *d, instruction *i, const char *form)
{
    for (; *form != '\0'; form++)
        switch (*form) {
        case 'd':
        case 'p':
            read_register(d, *form == 'd' ? &i->d : &i->more[0]);
            break;
        case 'a':
            i->a = ptx_take(d, ptx_word(d));
            break;
        case 'b':
            i->b = ptx_take(d, ptx_word(d));
            break;
        case 'c':
            i->c = ptx_take(d, ptx_word(d));
            break;
        case 'n':
        case 'm':
            i->more[*form == 'm'] = ptx_take(d, ptx_word(d));
            break;
        case 'v':
            if (ptx_take_vector(d, i->more, i->op == OP_LD) != i->count)
                ptx_refuse(d, (word){d->r.at, 0}, "a vector is expected");
            break;
        case '@':
            ptx_take_address(d, i);
            break;
        default:
            ptx_expect(d, (const char[]){*form, '\0'});
        }
}

/* mov: of one, of parts, or to parts */
static void read_move(decoding *d, instruction *i, uint8_t bytes)
{
    i->count = ptx_take_vector(d, i->more, true);
    ptx_expect(d, ",");
    if (i->count > 1) {
        i->op = OP_UNPACK;
        i->a = ptx_take(d, ptx_word(d));
    } else {
        i->d = i->more[0];
        i->count = ptx_take_vector(d, i->more, false);
        i->a = i->more[0];
        if (i->count > 1)
            i->op = OP_PACK;
    }
    i->size = bytes / i->count;
    ptx_expect(d, ";");
}

static void read_instruction(decoding *d, word w, instruction *i)
{
    spelling s;
    if (ptx_read_access(w, i)) {
        read_form(d, i, i->op == OP_LD ? "v,@;" : "@,v;");
        return;
    }
    if (!ptx_look(w, &s)) {
        ptx_refuse(d, w, "unknown opcode");
        return;
    }
    i->op = s.op;
    i->kind = s.kind;
    switch (s.op) {
    case OP_BRA:
        i->offset = ptx_label(d, ptx_word(d));
        i->kind = true;
        ptx_expect(d, ";");
        break;
    case OP_RET:
        if (d->first_label > 0) { // of what is called
            i->op = OP_BRA;
            i->offset = d->first_label;
            i->kind = true;
        }
        ptx_expect(d, ";");
        break;
    case OP_CALL:
        if (i->guard >= 0)
            ptx_refuse(d, w, "a predicate of");
        read_call(d);
        break;
    case OP_mov_16:
    case OP_mov_32:
    case OP_mov_64:
        read_move(d, i, s.op == OP_mov_16 ? 2 : s.op == OP_mov_32 ? 4 : 8);
        break;
    default:
        i->size = s.op == OP_BFI ? s.kind : s.kind == '<' ? 8 : 4;
        if (s.op == OP_ATOM && s.kind == 's')
            i->space = SHARED;
        read_form(d, i, s.form);
    }
}

static void read_statement(decoding *d, word w)
{
    function *f = d->f;
    if (ptx_is(w, ";"))
        return;
    if (w.length == 0) {
        ptx_refuse(d, w, "a brace is missing");
    } else if (w.at[0] == '.') {
        read_directive(d, w);
    } else if (ptx_is(w, "{")) {
        open_scope(d);
    } else if (ptx_is(w, "}")) {
        close_scope(d);
    } else if (ptx_meets(d, ":")) {
        const uint32_t here = ptx_label(d, w);
        if (ptx_good())
            d->labels[here].at = f->length;
    } else {
        const operand zero = ~(operand)ZERO;
        instruction i = {.count = 1,
                         .guard = zero,
                         .line = d->r.line,
                         .place = d->place,
                         .a = zero,
                         .b = zero,
                         .c = zero,
                         .d = zero};
        if (ptx_is(w, "@")) {
            i.negated = ptx_meets(d, "!");
            read_register(d, &i.guard);
            w = ptx_word(d);
        }
        read_instruction(d, w, &i);
        if (ptx_good() && i.op != OP_CALL && ptx_more(&f->code, f->length, &d->room, sizeof i))
            f->code[f->length++] = i;
    }
}

/* ---- functions ---- */

/* (.param .align 8 .b8 x[32], ...): of an entry in its arguments, else what is given. */
static uint32_t read_params(decoding *d, const function *f, const variable *given, uint32_t count)
{
    uint32_t read = 0, align;
    while (ptx_good() && !ptx_meets(d, ")")) {
        variable v;
        ptx_expect(d, ".param");
        if (!ptx_declare(&d->r, ptx_word(d), &v, &align) ||
            !ptx_more(&d->variables, d->variable_count, &d->variable_room, sizeof v))
            break;
        if (f->is_entry) {
            v.space = PARAM;
            v.offset = (d->f->param_bytes + align - 1) / align * align;
            d->f->param_bytes = v.offset + v.bytes;
        } else if (read < count && given[read].bytes == v.bytes) {
            v.space = LOCAL;
            v.offset = given[read++].offset;
        } else {
            (void)ptx_fail("a call of %.*s does not fit it", (int)f->name_length, f->name);
        }
        d->variables[d->variable_count++] = v;
        (void)ptx_meets(d, ",");
    }
    return read;
}

static void read_header(decoding *d, const function *f, const variable *given, uint32_t count)
{
    word w;
    while (ptx_good() && !ptx_is(w = ptx_word(d), "{"))
        if (ptx_is(w, "(")) {
            const uint32_t read = read_params(d, f, given, count);
            given += read;
            count -= read;
        } else if (ptx_is(w, ".maxntid")) {
            uint64_t most = 0;
            if (!ptx_number(ptx_word(d), &most))
                ptx_refuse(d, w, "unknown bound");
            d->f->most_threads = (uint32_t)most;
            for (int k = 0; k < 2; k++) {
                ptx_expect(d, ",");
                ptx_expect(d, "1");
            }
        } else if (w.length == 0 || w.at[0] == '.') {
            ptx_refuse(d, w, "unknown directive");
        }
    if (count > 0)
        (void)ptx_fail("a call of %.*s does not fit it", (int)f->name_length, f->name);
}

static void read_body(decoding *d, const function *f, const variable *given, uint32_t count)
{
    const reader back = d->r;
    const uint32_t outer = d->first_label, from = d->f->length;
    d->r = (reader){f->header, f->line};
    d->first_label = d->label_count;
    open_scope(d);
    const uint32_t end = ptx_label(d, (word){"", 0});
    read_header(d, f, given, count);
    for (const uint32_t depth = d->depth; ptx_good() && d->depth >= depth;)
        read_statement(d, ptx_word(d));
    if (ptx_good())
        d->labels[end].at = d->f->length;
    for (uint32_t k = from; ptx_good() && k < d->f->length; k++) {
        instruction *i = &d->f->code[k];
        if (i->op != OP_BRA || !i->kind)
            continue;
        const label *to = &d->labels[i->offset];
        if (to->at == NOWHERE)
            ptx_refuse(d, to->name, "unknown label");
        i->offset = to->at;
        i->kind = false;
    }
    d->label_count = d->first_label;
    d->first_label = outer;
    d->r = back;
}

bool ptx_decode(function *f)
{
    if (f->is_decoded)
        return true;
    const function whole = *f;
    decoding d = {.f = f};
    read_body(&d, f, NULL, 0);
    if (f->registers > FRAME_CELLS || f->frame_bytes > LOCAL_BYTES)
        (void)ptx_fail("%.*s: too many registers or variables", (int)f->name_length, f->name);
    if (ptx_good() && ptx_more(&f->code, f->length, &d.room, sizeof *f->code)) {
        f->code[f->length++] =
            (instruction){.op = OP_RET, .guard = ~(operand)ZERO, .place = d.place};
        f->is_decoded = true;
    } else {
        free(f->code);
        free(f->constants);
        *f = whole;
    }
    free(d.sets);
    free(d.variables);
    free(d.labels);
    return f->is_decoded;
}
