/* spelling.c: an opcode is looked up by its whole spelling, or it is refused. */
#include "tests/cuda/ptx/decode.h"

#include <string.h>

enum { TABLE = 4096 };

static spelling table[TABLE];

uint32_t ptx_hash(const char *text, uint32_t length)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h;
}

spelling *ptx_look(const char *text, uint32_t length)
{
    uint32_t k = ptx_hash(text, length) % TABLE;
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
        spelling *s = ptx_look(list, length);
        if (!s->taken)
            *s = (spelling){list, length, op, count, true};
        list += length + (list[length] == ' ');
    }
}

void ptx_fill_spellings(void)
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
bool ptx_read_access(word w, instruction *i)
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
bool ptx_read_atomic(word w, instruction *i)
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
