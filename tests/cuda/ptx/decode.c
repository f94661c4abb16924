/* decode.c: a function's text to instructions: registers by number, operands by type, labels as
 * places. An opcode is looked up by its whole spelling, or it is refused. */
#include "tests/cuda/ptx/ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- spellings ---- */

typedef struct spelling {
    const char *text;
    uint32_t length;
    uint16_t op;
    uint8_t count;
    bool taken;
} spelling;

enum { TABLE = 4096 };

static spelling table[TABLE];

static uint32_t hash(const char *text, uint32_t length)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h;
}

static spelling *look(const char *text, uint32_t length)
{
    uint32_t k = hash(text, length) % TABLE;
    while (table[k].taken &&
           (table[k].length != length || memcmp(table[k].text, text, length) != 0))
        k = (k + 1) % TABLE;
    return &table[k];
}

static const struct {
    const char *spellings;
    uint16_t op;
    uint8_t kind;
} others[] = {
    {"bra bra.uni", OP_BRA, 0},
    {"call call.uni", OP_CALL, 0},
    {"ret ret.uni", OP_RET, 0},
    {"exit", OP_EXIT, 0},
    {"trap", OP_TRAP, 0},
    {"bar.sync barrier.sync", OP_BAR, 0},
    {"shfl.sync.bfly.b32", OP_SHFL, 'b'},
    {"shfl.sync.idx.b32", OP_SHFL, 'i'},
    {"shfl.sync.up.b32", OP_SHFL, 'u'},
    {"shfl.sync.down.b32", OP_SHFL, 'd'},
    {"vote.sync.ballot.b32", OP_VOTE, 'b'},
    {"vote.sync.any.pred", OP_VOTE, 'o'},
    {"vote.sync.all.pred", OP_VOTE, 'a'},
    {"bfi.b32", OP_BFI, 4},
    {"bfi.b64", OP_BFI, 8},
};

static void add_spellings(const char *list, uint16_t op, uint8_t count)
{
    while (*list != '\0') {
        const uint32_t length = (uint32_t)strcspn(list, " ");
        spelling *s = look(list, length);
        if (!s->taken)
            *s = (spelling){list, length, op, count, true};
        list += length + (list[length] == ' ');
    }
}

static void fill_table(void)
{
    static bool is_full;
    if (is_full)
        return;
    is_full = true;
#define ROW(name, count, spellings, D, A, B, C, value) add_spellings(spellings, OP_##name, count);
#include "tests/cuda/ptx/ops.def"
#undef ROW
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        add_spellings(others[k].spellings, others[k].op, others[k].kind);
}

/* Types of what is loaded, stored and exchanged. */
static bool read_type(const char *text, size_t length, instruction *i)
{
    static const struct {
        const char *name;
        uint8_t size, is_signed;
    } types[] = {{"b8", 1, 0},  {"u8", 1, 0},  {"s8", 1, 1},  {"b16", 2, 0}, {"u16", 2, 0},
                 {"s16", 2, 1}, {"b32", 4, 0}, {"u32", 4, 0}, {"s32", 4, 1}, {"f32", 4, 0},
                 {"b64", 8, 0}, {"u64", 8, 0}, {"s64", 8, 1}, {"f64", 8, 0}};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (strlen(types[k].name) == length && memcmp(types[k].name, text, length) == 0) {
            i->size = types[k].size;
            i->kind = types[k].is_signed;
            return true;
        }
    return false;
}

/* ld.SPACE.nc.vN.TYPE and st.SPACE.vN.TYPE */
static bool read_access(word w, instruction *i)
{
    static const struct {
        const char *name;
        space space;
    } spaces[] = {{"global", GLOBAL},
                  {"shared", SHARED},
                  {"local", LOCAL},
                  {"param", PARAM},
                  {"const", GLOBAL}};
    const bool loads = w.length > 3 && memcmp(w.at, "ld.", 3) == 0;
    if (w.length < 4 || (!loads && memcmp(w.at, "st.", 3) != 0))
        return false;
    i->op = loads ? OP_LD : OP_ST;
    i->space = GENERIC;
    i->count = 1;
    uint32_t from = 3, stage = 0;
    while (from < w.length) {
        const char *part = w.at + from, *dot = memchr(part, '.', w.length - from);
        const size_t length = dot != NULL ? (size_t)(dot - part) : w.length - from;
        from += (uint32_t)length + 1;
        if (from > w.length) // the last
            return read_type(part, length, i);
        bool is_known = false;
        for (size_t k = 0; stage == 0 && k < sizeof spaces / sizeof *spaces; k++)
            if (strlen(spaces[k].name) == length && memcmp(spaces[k].name, part, length) == 0) {
                i->space = (uint8_t)spaces[k].space;
                is_known = true;
            }
        if (is_known) {
            stage = 1;
        } else if (loads && stage == 1 && length == 2 && memcmp(part, "nc", 2) == 0) {
            stage = 2;
        } else if (stage < 3 && length == 2 && part[0] == 'v' &&
                   (part[1] == '2' || part[1] == '4')) {
            i->count = (uint8_t)(part[1] - '0');
            stage = 3;
        } else {
            return false;
        }
    }
    return false;
}

/* atom.SPACE.KIND.TYPE */
static bool read_atomic(word w, instruction *i)
{
    static const struct {
        const char *name;
        uint8_t kind;
    } kinds[] = {{"add.u32", '+'}, {"add.s32", '+'}, {"or.b32", '|'}, {"min.u64", '<'}};
    static const struct {
        const char *name;
        space space;
    } spaces[] = {{"atom.global.", GLOBAL}, {"atom.shared.", SHARED}, {"atom.", GENERIC}};
    for (size_t k = 0; k < sizeof spaces / sizeof *spaces; k++) {
        const size_t head = strlen(spaces[k].name);
        for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++)
            if (w.length == head + strlen(kinds[n].name) &&
                memcmp(w.at, spaces[k].name, head) == 0 &&
                memcmp(w.at + head, kinds[n].name, w.length - head) == 0) {
                i->op = OP_ATOM;
                i->space = (uint8_t)spaces[k].space;
                i->kind = kinds[n].kind;
                i->count = 1;
                i->size = kinds[n].kind == '<' ? 8 : 4;
                return true;
            }
    }
    return false;
}

/* ---- names of a function ---- */

typedef struct registers { /* %r<10>, or one alone: count 0 */
    const char *prefix;
    uint32_t length, first, count;
} registers;

typedef struct label {
    const char *name;
    uint32_t length, at;
    bool is_there;
} label;

typedef struct decoding {
    function *f;
    reader r;
    registers *sets;
    uint32_t set_count, set_room;
    variable *variables; /* of the frame */
    uint32_t variable_count, variable_room;
    label *labels; /* a table, by hash */
    uint32_t label_room, label_count;
    uint32_t room, constant_room, call_room;
    uint32_t place;
    uint32_t registers, bytes; /* the most so far: scopes use the same ones again */
    struct {
        uint32_t variables, sets, registers, bytes;
    } scopes[8];
    uint32_t depth;
} decoding;

static bool more(void *list, uint32_t count, uint32_t *room, size_t size)
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

static bool refuse(const decoding *d, word w, const char *why)
{
    return ptx_fail("%.*s, line %u of its PTX: %s '%.*s'", (int)d->f->name_length, d->f->name,
                    d->r.line, why, (int)w.length, w.at);
}

static bool put_constant(decoding *d, uint64_t value, operand *to)
{
    function *f = d->f;
    for (uint32_t k = 0; k < f->constant_count && k < 64; k++)
        if (f->constants[k][0].u64 == value) {
            *to = ~(operand)(SPECIALS + k);
            return true;
        }
    if (!more(&f->constants, f->constant_count, &d->constant_room, sizeof *f->constants))
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

static const variable *frame_variable(const decoding *d, word w)
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
static bool take(decoding *d, word w, operand *to)
{
    uint64_t value;
    if (w.length > 0 && w.at[0] == '%') {
        if (is_register(d, w, to))
            return true;
        for (size_t k = 0; k < sizeof specials / sizeof *specials; k++)
            if (ptx_is(w, specials[k].name)) {
                *to = ~(operand)specials[k].special;
                return true;
            }
        return refuse(d, w, "unknown register");
    }
    if (is_register(d, w, to)) // temp_param_reg
        return true;
    if (ptx_number(w, &value))
        return put_constant(d, value, to);
    const variable *v = entry_param(d, w);
    if (v != NULL)
        return put_constant(d, v->offset, to);
    const symbol *s = ptx_symbol(d->f->module, w.at, w.length);
    if (s != NULL) // what is asked for at the launch lies behind what is declared
        return put_constant(d,
                            !s->is_shared   ? (uint64_t)(uintptr_t)s->data
                            : s->bytes == 0 ? (d->f->module->shared_bytes + 15) / 16 * 16
                                            : s->offset,
                            to);
    return refuse(d, w, "unknown operand");
}

static bool expect(decoding *d, const char *sign)
{
    word w;
    if (ptx_next(&d->r, &w) && ptx_is(w, sign))
        return true;
    return refuse(d, w, sign[0] == ';' ? "more operands than are known:" : "unexpected");
}

static bool next_operand(decoding *d, operand *to)
{
    word w;
    return ptx_next(&d->r, &w) && take(d, w, to);
}

/* {a, b} or one alone; `_` is written nowhere. */
static bool take_vector(decoding *d, operand *list, uint32_t count, bool writes)
{
    word w;
    (void)ptx_next(&d->r, &w);
    if (!ptx_is(w, "{"))
        return count == 1 ? take(d, w, &list[0]) : refuse(d, w, "a vector is expected, not");
    for (uint32_t k = 0; k < count; k++) {
        (void)ptx_next(&d->r, &w);
        if (writes && ptx_is(w, "_"))
            list[k] = 0;
        else if (!take(d, w, &list[k]))
            return false;
        if (!expect(d, k + 1 < count ? "," : "}"))
            return false;
    }
    return true;
}

/* [register + 4], [name], [name + 8] */
static bool take_address(decoding *d, instruction *i)
{
    word w;
    uint64_t value;
    if (!expect(d, "[") || !ptx_next(&d->r, &w))
        return false;
    const variable *v = frame_variable(d, w);
    i->a = ~(operand)ZERO;
    if (v != NULL) {
        i->in_frame = true;
        i->offset = v->offset;
        i->space = LOCAL;
    } else if (!take(d, w, &i->a)) {
        return false;
    }
    (void)ptx_next(&d->r, &w);
    if (ptx_is(w, "+")) {
        (void)ptx_next(&d->r, &w);
        if (!ptx_number(w, &value))
            return refuse(d, w, "unknown offset");
        i->offset += (int64_t)value;
        (void)ptx_next(&d->r, &w);
    }
    return ptx_is(w, "]") || refuse(d, w, "unexpected");
}

static label *label_of(decoding *d, word w)
{
    if (2 * d->label_count + 2 > d->label_room) {
        const uint32_t room = d->label_room == 0 ? 256 : 4 * d->label_room;
        label *old = d->labels, *bigger = calloc(room, sizeof *bigger);
        if (bigger == NULL)
            return NULL;
        for (uint32_t k = 0; k < d->label_room; k++)
            if (old[k].name != NULL) {
                uint32_t at = hash(old[k].name, old[k].length) % room;
                while (bigger[at].name != NULL)
                    at = (at + 1) % room;
                bigger[at] = old[k];
            }
        free(old);
        d->labels = bigger;
        d->label_room = room;
    }
    uint32_t at = hash(w.at, w.length) % d->label_room;
    while (d->labels[at].name != NULL &&
           (d->labels[at].length != w.length || memcmp(d->labels[at].name, w.at, w.length) != 0))
        at = (at + 1) % d->label_room;
    if (d->labels[at].name == NULL) {
        d->labels[at] = (label){w.at, w.length, 0, false};
        d->label_count++;
    }
    return &d->labels[at];
}

/* ---- statements ---- */

static bool add_variable(decoding *d, word type)
{
    function *f = d->f;
    variable v;
    uint32_t align;
    if (!ptx_declare(&d->r, type, &v, &align) ||
        !more(&d->variables, d->variable_count, &d->variable_room, sizeof v))
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
        if (!ptx_next(&d->r, &w) || !more(&d->sets, d->set_count, &d->set_room, sizeof *d->sets))
            return false;
        registers set = {w.at, w.length, d->f->registers, 0};
        (void)ptx_next(&d->r, &w);
        if (ptx_is(w, "<")) {
            if (!ptx_next(&d->r, &w) || !ptx_number(w, &count) || count == 0 || count > 1u << 20 ||
                !expect(d, ">") || !ptx_next(&d->r, &w))
                return refuse(d, w, "unknown count of registers");
            set.count = (uint32_t)count;
        }
        d->f->registers += set.count > 0 ? set.count : 1;
        d->sets[d->set_count++] = set;
    } while (ptx_is(w, ","));
    return ptx_is(w, ";") || refuse(d, w, "unexpected");
}

/* .loc 1 66 0, function_name ..., inlined_at ...: the first two to the end of the line. */
static bool read_place(decoding *d)
{
    word w;
    uint64_t file, line;
    if (!ptx_next(&d->r, &w) || !ptx_number(w, &file) || !ptx_next(&d->r, &w) ||
        !ptx_number(w, &line))
        return refuse(d, w, "unknown place");
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
        return ptx_next(&d->r, &w) && add_variable(d, w) && expect(d, ";");
    if (ptx_is(w, ".pragma")) // unrolling is ptxas's
        return ptx_next(&d->r, &w) && expect(d, ";");
    return refuse(d, w, "unknown directive");
}

static bool read_call(decoding *d, instruction *i)
{
    function *f = d->f;
    word w;
    call c = {0};
    if (!more(&f->calls, f->call_count, &d->call_room, sizeof c))
        return false;
    (void)ptx_next(&d->r, &w);
    if (ptx_is(w, "(")) {
        (void)ptx_next(&d->r, &w);
        const variable *v = frame_variable(d, w);
        if (v == NULL)
            return refuse(d, w, "unknown result");
        c.has_result = true;
        c.to = *v;
        if (!expect(d, ")") || !expect(d, ",") || !ptx_next(&d->r, &w))
            return false;
    }
    c.callee = ptx_find(f->module, w.at, w.length);
    if (c.callee == NULL)
        return refuse(d, w, "a call of a function that is not there,");
    (void)ptx_next(&d->r, &w);
    if (ptx_is(w, ",") && expect(d, "("))
        while (ptx_next(&d->r, &w) && !ptx_is(w, ")")) {
            if (ptx_is(w, ","))
                continue;
            const variable *v = frame_variable(d, w);
            if (v == NULL || c.count == sizeof c.from / sizeof *c.from)
                return refuse(d, w, "unknown argument");
            c.from[c.count++] = *v;
        }
    i->offset = f->call_count;
    f->calls[f->call_count++] = c;
    return ptx_is(w, ";") || expect(d, ";");
}

static bool read_shuffle(decoding *d, instruction *i)
{
    word w;
    i->more[0] = ~(operand)ZERO; // no predicate
    if (!next_operand(d, &i->d) || !ptx_next(&d->r, &w))
        return false;
    if (ptx_is(w, "|") && (!next_operand(d, &i->more[0]) || !ptx_next(&d->r, &w)))
        return false;
    return (ptx_is(w, ",") || refuse(d, w, "unexpected")) && next_operand(d, &i->a) &&
           expect(d, ",") && next_operand(d, &i->b) && expect(d, ",") && next_operand(d, &i->c) &&
           expect(d, ",") && next_operand(d, &i->more[1]) && expect(d, ";");
}

static bool read_vote(decoding *d, instruction *i)
{
    word w;
    if (!next_operand(d, &i->d) || !expect(d, ",") || !ptx_next(&d->r, &w))
        return false;
    if (ptx_is(w, "!")) {
        i->negated = true;
        (void)ptx_next(&d->r, &w);
    }
    return take(d, w, &i->a) && expect(d, ",") && next_operand(d, &i->b) && expect(d, ";");
}

static bool read_operands(decoding *d, instruction *i)
{
    operand *const to[] = {&i->a, &i->b, &i->c};
    if (!next_operand(d, &i->d))
        return false;
    for (uint8_t k = 0; k < i->count; k++)
        if (!expect(d, ",") || !next_operand(d, to[k]))
            return false;
    return expect(d, ";");
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
        return take_vector(d, i->more, i->count, true) && expect(d, ",") &&
               next_operand(d, &i->a) && expect(d, ";");
    }
    if (!next_operand(d, &i->d) || !expect(d, ","))
        return false;
    ahead = d->r;
    (void)ptx_next(&ahead, &w);
    if (ptx_is(w, "{")) {
        i->op = OP_PACK;
        while (ptx_next(&ahead, &w) && !ptx_is(w, "}"))
            i->count += ptx_is(w, ",");
        i->size = (uint8_t)(bytes / i->count);
        return take_vector(d, i->more, i->count, false) && expect(d, ";");
    }
    const variable *v = frame_variable(d, w);
    if (v == NULL)
        return next_operand(d, &i->a) && expect(d, ";");
    i->op = OP_PLACE;
    i->offset = v->offset;
    for (uint32_t k = 0; k < d->f->param_count; k++)
        if (v->name == d->f->params[k].name)
            i->offset += (int64_t)FRAME_PARAM;
    (void)ptx_next(&d->r, &w);
    return expect(d, ";");
}

static bool read_instruction(decoding *d, word w, instruction *i)
{
    if (read_access(w, i)) {
        const bool loads = i->op == OP_LD;
        return (loads ? take_vector(d, i->more, i->count, true) && expect(d, ",") &&
                            take_address(d, i)
                      : take_address(d, i) && expect(d, ",") &&
                            take_vector(d, i->more, i->count, false)) &&
               expect(d, ";");
    }
    if (read_atomic(w, i))
        return next_operand(d, &i->d) && expect(d, ",") && take_address(d, i) && expect(d, ",") &&
               next_operand(d, &i->b) && expect(d, ";");
    const spelling *s = look(w.at, w.length);
    if (!s->taken)
        return refuse(d, w, "unknown opcode");
    i->op = s->op;
    i->count = i->kind = s->count;
    switch (s->op) {
    case OP_BRA:
        (void)ptx_next(&d->r, &w);
        label *to = label_of(d, w);
        if (to == NULL)
            return ptx_fail("no memory");
        i->offset = to - d->labels;
        // Tables move when they grow: the name is looked up again at the end.
        i->a = (operand)(w.at - d->f->body);
        i->b = (operand)w.length;
        return expect(d, ";");
    case OP_CALL:
        return read_call(d, i);
    case OP_RET:
    case OP_EXIT:
    case OP_TRAP:
        return expect(d, ";");
    case OP_BAR:
        return ptx_next(&d->r, &w) && (ptx_is(w, "0") || refuse(d, w, "unknown barrier")) &&
               expect(d, ";");
    case OP_SHFL:
        return read_shuffle(d, i);
    case OP_VOTE:
        return read_vote(d, i);
    case OP_BFI: // the one with four inputs
        i->size = s->count;
        return next_operand(d, &i->d) && expect(d, ",") && next_operand(d, &i->a) &&
               expect(d, ",") && next_operand(d, &i->b) && expect(d, ",") &&
               next_operand(d, &i->c) && expect(d, ",") && next_operand(d, &i->more[0]) &&
               expect(d, ";");
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
        return refuse(d, w, "too deep a");
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
        return refuse(d, w, "unexpected");
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
        label *l = label_of(d, w);
        if (l == NULL)
            return ptx_fail("no memory");
        l->at = f->length;
        l->is_there = true;
        d->r = ahead;
        return true;
    }
    if (!more(&f->code, f->length, &d->room, sizeof *f->code))
        return false;
    instruction i = {.guard = ~(operand)ZERO, .line = d->r.line, .place = d->place};
    i.a = i.b = i.c = i.d = ~(operand)ZERO;
    if (ptx_is(w, "@")) {
        (void)ptx_next(&d->r, &w);
        if (ptx_is(w, "!")) {
            i.negated = true;
            (void)ptx_next(&d->r, &w);
        }
        if (!take(d, w, &i.guard) || !ptx_next(&d->r, &w))
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
            return refuse(d, w, "unknown parameter");
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
                return refuse(d, w, "unknown bound");
            f->most_threads = (uint32_t)most;
            for (int k = 0; k < 2; k++)
                if (!expect(d, ",") || !expect(d, "1"))
                    return false;
        } else if (!ptx_is(w, ".noreturn") && w.at[0] == '.') {
            return refuse(d, w, "unknown directive");
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
        const label *l = label_of(d, w);
        if (l == NULL || !l->is_there)
            return refuse(d, w, "unknown label");
        i->offset = l->at;
        i->a = i->b = ~(operand)ZERO;
    }
    if (!more(&f->code, f->length, &d->room, sizeof *f->code))
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
    fill_table();
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
