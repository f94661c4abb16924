/* decode.c: a function's text to instructions: operands by type, labels as places. */
#include "tests/cuda/ptx/decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool add_variable(decoding *d, word type)
{
    function *f = d->f;
    variable v;
    uint32_t align;
    if (!ptx_declare(&d->r, type, &v, &align) ||
        !ptx_more(&d->variables, d->variable_count, &d->variable_room, sizeof v))
        return false;
    v.offset = (f->frame_bytes + align - 1) / align * align;
    f->frame_bytes = v.offset + v.bytes;
    d->variables[d->variable_count++] = v;
    return true;
}

/* .reg .b32 %r<10>; or .reg .u32 a, b, c; */
static bool add_registers(decoding *d)
{
    word w;
    uint64_t count = 0;
    (void)ptx_next(&d->r, &w); // all are cells
    do {
        if (!ptx_next(&d->r, &w) ||
            !ptx_more(&d->sets, d->set_count, &d->set_room, sizeof *d->sets))
            return false;
        registers set = {w.at, w.length, d->f->registers, 0};
        (void)ptx_next(&d->r, &w);
        if (ptx_is(w, "<")) {
            if (!ptx_next(&d->r, &w) || !ptx_number(w, &count) || count == 0 || count > 1u << 20 ||
                !ptx_expect(d, ">") || !ptx_next(&d->r, &w))
                return ptx_refuse(d, w, "unknown count of registers");
            set.count = (uint32_t)count;
        }
        d->f->registers += set.count > 0 ? set.count : 1;
        d->sets[d->set_count++] = set;
    } while (ptx_is(w, ","));
    return ptx_is(w, ";") || ptx_refuse(d, w, "unexpected");
}

/* .loc 1 66 0, function_name ..., inlined_at ...: the first two to the end of the line. */
static bool read_place(decoding *d)
{
    word w;
    uint64_t file, line;
    if (!ptx_next(&d->r, &w) || !ptx_number(w, &file) || !ptx_next(&d->r, &w) ||
        !ptx_number(w, &line))
        return ptx_refuse(d, w, "unknown place");
    while (d->r.at < d->r.end && *d->r.at != '\n')
        d->r.at++;
    if (line > 0)
        d->place = (uint32_t)file << 20 | (uint32_t)line;
    return true;
}

static bool read_directive(decoding *d, word w)
{
    if (ptx_is(w, ".loc"))
        return read_place(d);
    if (ptx_is(w, ".reg"))
        return add_registers(d);
    if (ptx_is(w, ".param") || ptx_is(w, ".local"))
        return ptx_next(&d->r, &w) && add_variable(d, w) && ptx_expect(d, ";");
    if (ptx_is(w, ".pragma")) // unrolling is ptxas's
        return ptx_next(&d->r, &w) && ptx_expect(d, ";");
    return ptx_refuse(d, w, "unknown directive");
}

static bool read_call(decoding *d, instruction *i)
{
    function *f = d->f;
    word w;
    call c = {0};
    if (!ptx_more(&f->calls, f->call_count, &d->call_room, sizeof c))
        return false;
    (void)ptx_next(&d->r, &w);
    if (ptx_is(w, "(")) {
        (void)ptx_next(&d->r, &w);
        const variable *v = ptx_frame_variable(d, w);
        if (v == NULL)
            return ptx_refuse(d, w, "unknown result");
        c.has_result = true;
        c.to = *v;
        if (!ptx_expect(d, ")") || !ptx_expect(d, ",") || !ptx_next(&d->r, &w))
            return false;
    }
    c.callee = ptx_find(f->module, w.at, w.length);
    if (c.callee == NULL)
        return ptx_refuse(d, w, "a call of a function that is not there,");
    (void)ptx_next(&d->r, &w);
    if (ptx_is(w, ",") && ptx_expect(d, "("))
        while (ptx_next(&d->r, &w) && !ptx_is(w, ")")) {
            if (ptx_is(w, ","))
                continue;
            const variable *v = ptx_frame_variable(d, w);
            if (v == NULL || c.count == sizeof c.from / sizeof *c.from)
                return ptx_refuse(d, w, "unknown argument");
            c.from[c.count++] = *v;
        }
    i->offset = f->call_count;
    f->calls[f->call_count++] = c;
    return ptx_is(w, ";") || ptx_expect(d, ";");
}

static bool read_shuffle(decoding *d, instruction *i)
{
    word w;
    i->more[0] = ~(operand)ZERO; // no predicate
    if (!ptx_next_operand(d, &i->d) || !ptx_next(&d->r, &w))
        return false;
    if (ptx_is(w, "|") && (!ptx_next_operand(d, &i->more[0]) || !ptx_next(&d->r, &w)))
        return false;
    return (ptx_is(w, ",") || ptx_refuse(d, w, "unexpected")) && ptx_next_operand(d, &i->a) &&
           ptx_expect(d, ",") && ptx_next_operand(d, &i->b) && ptx_expect(d, ",") &&
           ptx_next_operand(d, &i->c) && ptx_expect(d, ",") && ptx_next_operand(d, &i->more[1]) &&
           ptx_expect(d, ";");
}

static bool read_vote(decoding *d, instruction *i)
{
    word w;
    if (!ptx_next_operand(d, &i->d) || !ptx_expect(d, ",") || !ptx_next(&d->r, &w))
        return false;
    if (ptx_is(w, "!")) {
        i->negated = true;
        (void)ptx_next(&d->r, &w);
    }
    return ptx_take(d, w, &i->a) && ptx_expect(d, ",") && ptx_next_operand(d, &i->b) &&
           ptx_expect(d, ";");
}

static bool read_operands(decoding *d, instruction *i)
{
    operand *const to[] = {&i->a, &i->b, &i->c};
    if (!ptx_next_operand(d, &i->d))
        return false;
    for (uint8_t k = 0; k < i->count; k++)
        if (!ptx_expect(d, ",") || !ptx_next_operand(d, to[k]))
            return false;
    return ptx_expect(d, ";");
}

/* mov: of a value, of an address of the frame, of parts to a whole and back. */
static bool read_move(decoding *d, instruction *i, uint32_t bytes)
{
    word w;
    reader ahead = d->r;
    (void)ptx_next(&ahead, &w);
    if (ptx_is(w, "{")) { // {a, b} = whole
        i->op = OP_UNPACK;
        while (ptx_next(&ahead, &w) && !ptx_is(w, "}"))
            i->count += ptx_is(w, ",");
        i->size = (uint8_t)(bytes / i->count);
        return ptx_take_vector(d, i->more, i->count, true) && ptx_expect(d, ",") &&
               ptx_next_operand(d, &i->a) && ptx_expect(d, ";");
    }
    if (!ptx_next_operand(d, &i->d) || !ptx_expect(d, ","))
        return false;
    ahead = d->r;
    (void)ptx_next(&ahead, &w);
    if (ptx_is(w, "{")) {
        i->op = OP_PACK;
        while (ptx_next(&ahead, &w) && !ptx_is(w, "}"))
            i->count += ptx_is(w, ",");
        i->size = (uint8_t)(bytes / i->count);
        return ptx_take_vector(d, i->more, i->count, false) && ptx_expect(d, ";");
    }
    const variable *v = ptx_frame_variable(d, w);
    if (v == NULL)
        return ptx_next_operand(d, &i->a) && ptx_expect(d, ";");
    i->op = OP_PLACE;
    i->offset = v->offset;
    for (uint32_t k = 0; k < d->f->param_count; k++)
        if (v->name == d->f->params[k].name)
            i->offset += (int64_t)FRAME_PARAM;
    (void)ptx_next(&d->r, &w);
    return ptx_expect(d, ";");
}

static bool read_instruction(decoding *d, word w, instruction *i)
{
    if (ptx_read_access(w, i)) {
        const bool loads = i->op == OP_LD;
        return (loads ? ptx_take_vector(d, i->more, i->count, true) && ptx_expect(d, ",") &&
                            ptx_take_address(d, i)
                      : ptx_take_address(d, i) && ptx_expect(d, ",") &&
                            ptx_take_vector(d, i->more, i->count, false)) &&
               ptx_expect(d, ";");
    }
    if (ptx_read_atomic(w, i))
        return ptx_next_operand(d, &i->d) && ptx_expect(d, ",") && ptx_take_address(d, i) &&
               ptx_expect(d, ",") && ptx_next_operand(d, &i->b) && ptx_expect(d, ";");
    const spelling *s = ptx_look(w.at, w.length);
    if (!s->taken)
        return ptx_refuse(d, w, "unknown opcode");
    i->op = s->op;
    i->count = i->kind = s->count;
    switch (s->op) {
    case OP_BRA:
        (void)ptx_next(&d->r, &w);
        label *to = ptx_label_of(d, w);
        if (to == NULL)
            return ptx_fail("no memory");
        i->offset = to - d->labels;
        // Tables move when they grow: the name is looked up again at the end.
        i->a = (operand)(w.at - d->f->body);
        i->b = (operand)w.length;
        return ptx_expect(d, ";");
    case OP_CALL:
        return read_call(d, i);
    case OP_RET:
    case OP_EXIT:
    case OP_TRAP:
        return ptx_expect(d, ";");
    case OP_BAR:
        return ptx_next(&d->r, &w) && (ptx_is(w, "0") || ptx_refuse(d, w, "unknown barrier")) &&
               ptx_expect(d, ";");
    case OP_SHFL:
        return read_shuffle(d, i);
    case OP_VOTE:
        return read_vote(d, i);
    case OP_BFI: // the one with four inputs
        i->size = s->count;
        return ptx_next_operand(d, &i->d) && ptx_expect(d, ",") && ptx_next_operand(d, &i->a) &&
               ptx_expect(d, ",") && ptx_next_operand(d, &i->b) && ptx_expect(d, ",") &&
               ptx_next_operand(d, &i->c) && ptx_expect(d, ",") &&
               ptx_next_operand(d, &i->more[0]) && ptx_expect(d, ";");
    case OP_mov_16:
    case OP_mov_32:
    case OP_mov_64:
        i->count = 1;
        return read_move(d, i, s->op == OP_mov_16 ? 2 : s->op == OP_mov_32 ? 4 : 8);
    default:
        return read_operands(d, i);
    }
}

static void measure(decoding *d)
{
    d->registers = d->f->registers > d->registers ? d->f->registers : d->registers;
    d->bytes = d->f->frame_bytes > d->bytes ? d->f->frame_bytes : d->bytes;
}

static bool open_scope(decoding *d, word w)
{
    if (d->depth == sizeof d->scopes / sizeof *d->scopes)
        return ptx_refuse(d, w, "too deep a");
    d->scopes[d->depth].variables = d->variable_count;
    d->scopes[d->depth].sets = d->set_count;
    d->scopes[d->depth].registers = d->f->registers;
    d->scopes[d->depth++].bytes = d->f->frame_bytes;
    return true;
}

/* Names end with their scope, and so does their room. */
static bool close_scope(decoding *d, word w)
{
    if (d->depth == 0)
        return ptx_refuse(d, w, "unexpected");
    measure(d);
    d->variable_count = d->scopes[--d->depth].variables;
    d->set_count = d->scopes[d->depth].sets;
    d->f->registers = d->scopes[d->depth].registers;
    d->f->frame_bytes = d->scopes[d->depth].bytes;
    return true;
}

static bool read_statement(decoding *d, word w)
{
    function *f = d->f;
    reader ahead = d->r;
    word after;
    if (w.at[0] == '.')
        return read_directive(d, w);
    if (ptx_is(w, "{"))
        return open_scope(d, w);
    if (ptx_is(w, "}"))
        return close_scope(d, w);
    if (ptx_is(w, ";"))
        return true;
    if (ptx_next(&ahead, &after) && ptx_is(after, ":")) {
        label *l = ptx_label_of(d, w);
        if (l == NULL)
            return ptx_fail("no memory");
        l->at = f->length;
        l->is_there = true;
        d->r = ahead;
        return true;
    }
    if (!ptx_more(&f->code, f->length, &d->room, sizeof *f->code))
        return false;
    instruction i = {.guard = ~(operand)ZERO, .line = d->r.line, .place = d->place};
    i.a = i.b = i.c = i.d = ~(operand)ZERO;
    if (ptx_is(w, "@")) {
        (void)ptx_next(&d->r, &w);
        if (ptx_is(w, "!")) {
            i.negated = true;
            (void)ptx_next(&d->r, &w);
        }
        if (!ptx_take(d, w, &i.guard) || !ptx_next(&d->r, &w))
            return false;
    }
    if (!read_instruction(d, w, &i))
        return false;
    f->code[f->length++] = i;
    return true;
}

/* (.param .align 8 .b8 x[32], ...): of an entry offsets in its arguments, else in the frame. */
static bool read_params(decoding *d, variable *list, uint32_t most, uint32_t *count)
{
    function *f = d->f;
    word w;
    uint32_t align, at = 0;
    while (ptx_next(&d->r, &w) && !ptx_is(w, ")")) {
        if (ptx_is(w, ","))
            continue;
        if (*count == most || !ptx_is(w, ".param") || !ptx_next(&d->r, &w))
            return ptx_refuse(d, w, "unknown parameter");
        variable v;
        if (!f->is_entry) {
            if (!add_variable(d, w))
                return false;
            v = d->variables[d->variable_count - 1];
        } else {
            if (!ptx_declare(&d->r, w, &v, &align))
                return false;
            v.offset = at = (at + align - 1) / align * align;
            f->param_bytes = at += v.bytes;
        }
        list[(*count)++] = v;
    }
    return true;
}

static bool read_header(decoding *d)
{
    function *f = d->f;
    word w;
    uint32_t results = 0;
    uint64_t most;
    (void)ptx_next(&d->r, &w);
    if (ptx_is(w, "(")) {
        if (!read_params(d, &f->result, 1, &results) || !ptx_next(&d->r, &w))
            return false;
    }
    while (ptx_next(&d->r, &w) && !ptx_is(w, "{"))
        if (ptx_is(w, "(")) {
            if (!read_params(d, f->params, sizeof f->params / sizeof *f->params, &f->param_count))
                return false;
        } else if (ptx_is(w, ".maxntid")) {
            if (!ptx_next(&d->r, &w) || !ptx_number(w, &most))
                return ptx_refuse(d, w, "unknown bound");
            f->most_threads = (uint32_t)most;
            for (int k = 0; k < 2; k++)
                if (!ptx_expect(d, ",") || !ptx_expect(d, "1"))
                    return false;
        } else if (!ptx_is(w, ".noreturn") && w.at[0] == '.') {
            return ptx_refuse(d, w, "unknown directive");
        }
    return true;
}

static bool decode(decoding *d)
{
    function *f = d->f;
    word w;
    f->registers = 1; // the first is written where nothing is
    if (!read_header(d))
        return false;
    while (ptx_next(&d->r, &w))
        if (!read_statement(d, w))
            return false;
    measure(d);
    f->registers = d->registers;
    f->frame_bytes = d->bytes;
    for (uint32_t k = 0; k < f->length; k++) {
        instruction *i = &f->code[k];
        if (i->op != OP_BRA)
            continue;
        w = (word){f->body + i->a, (uint32_t)i->b};
        const label *l = ptx_label_of(d, w);
        if (l == NULL || !l->is_there)
            return ptx_refuse(d, w, "unknown label");
        i->offset = l->at;
        i->a = i->b = ~(operand)ZERO;
    }
    if (!ptx_more(&f->code, f->length, &d->room, sizeof *f->code))
        return false;
    f->code[f->length++] =
        (instruction){.op = OP_RET, .guard = ~(operand)ZERO, .place = d->place, .line = d->r.line};
    f->frame_bytes = (f->frame_bytes + 15) / 16 * 16;
    f->is_decoded = true;
    for (uint32_t k = 0; k < f->call_count; k++) { // arguments fit what is called
        call *c = &f->calls[k];
        if (!ptx_decode(c->callee))
            return false;
        bool fits = c->count == c->callee->param_count &&
                    (!c->has_result || c->to.bytes == c->callee->result.bytes);
        for (uint32_t a = 0; fits && a < c->count; a++)
            fits = c->from[a].bytes == c->callee->params[a].bytes;
        if (!fits)
            return ptx_fail("a call of %.*s does not fit it", (int)c->callee->name_length,
                            c->callee->name);
    }
    return true;
}

bool ptx_decode(function *f)
{
    if (f->is_decoded)
        return true;
    ptx_fill_spellings();
    const function whole = *f;
    decoding d = {.f = f, .r = {f->header, f->end - 1, f->line}}; // without the last brace
    const bool good = decode(&d);
    if (!good) {
        free(f->code);
        free(f->constants);
        free(f->calls);
        *f = whole;
    }
    free(d.sets);
    free(d.variables);
    free(d.labels);
    return good;
}
