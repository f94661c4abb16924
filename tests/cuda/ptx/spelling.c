/* spelling.c: an opcode is looked up by its whole spelling, or it is refused. */
#include "tests/cuda/ptx/decode.h"

#include <string.h>

enum { TABLE = 1024 };

static spelling table[TABLE];

static spelling *slot_of(const char *text, uint32_t length)
{
    uint32_t k = 2166136261u;
    for (uint32_t i = 0; i < length; i++)
        k = (k ^ (unsigned char)text[i]) * 16777619u;
    for (k %= TABLE; table[k].taken; k = (k + 1) % TABLE)
        if (table[k].length == length && memcmp(table[k].text, text, length) == 0)
            break;
    return &table[k];
}

static const char *const forms[] = {"", "d,a;", "d,a,b;", "d,a,b,c;"}; // of so many inputs

static const struct {
    const char *spellings;
    uint16_t op;
    uint8_t kind;
    const char *form;
} others[] = {
    {"bra bra.uni", OP_BRA, 0, ""},
    {"call.uni", OP_CALL, 0, ""},
    {"ret", OP_RET, 0, ";"},
    {"trap", OP_TRAP, 0, ";"},
    {"bar.sync", OP_BAR, 0, "0;"},
    {"shfl.sync.bfly.b32", OP_SHFL, 'b', "d|p,a,b,c,m;"},
    {"shfl.sync.idx.b32", OP_SHFL, 'i', "d|p,a,b,c,m;"},
    {"vote.sync.ballot.b32", OP_VOTE, 0, "d,a,b;"},
    {"bfi.b32", OP_BFI, 4, "d,a,b,c,n;"},
    {"bfi.b64", OP_BFI, 8, "d,a,b,c,n;"},
    {"atom.global.add.u32", OP_ATOM, '+', "d,@,b;"},
    {"atom.global.min.u64", OP_ATOM, '<', "d,@,b;"},
    {"atom.shared.add.u32", OP_ATOM, 's', "d,@,b;"},
};

static void add_spellings(const char *list, uint16_t op, uint8_t kind, const char *form)
{
    while (*list != '\0') {
        const uint32_t length = (uint32_t)strcspn(list, " ");
        *slot_of(list, length) = (spelling){list, length, op, kind, form, true};
        list += length + (list[length] == ' ');
    }
}

bool ptx_look(word w, spelling *s)
{
    static bool is_full;
    if (!is_full) {
#define ROW(name, count, spellings, D, A, B, C, value) \
    add_spellings(spellings, OP_##name, count, forms[count]);
#include "tests/cuda/ptx/ops.def"
#undef ROW
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            add_spellings(others[k].spellings, others[k].op, others[k].kind, others[k].form);
    }
    is_full = true;
    *s = *slot_of(w.at, w.length);
    return s->taken;
}

static bool pass(word *w, const char *text)
{
    const size_t length = strlen(text);
    if (w->length < length || memcmp(w->at, text, length) != 0)
        return false;
    w->at += length;
    w->length -= (uint32_t)length;
    return true;
}

/* ld.SPACE.nc.vN.TYPE and st.SPACE.vN.TYPE */
bool ptx_read_access(word w, instruction *i)
{
    static const char *const spaces[] = {
        [GLOBAL] = "global", [SHARED] = "shared", [LOCAL] = "local", [PARAM] = "param"};
    const bool loads = pass(&w, "ld.");
    bool is_signed;
    if (!loads && !pass(&w, "st."))
        return false;
    i->op = loads ? OP_LD : OP_ST;
    while (!pass(&w, spaces[i->space]))
        if (i->space++ == PARAM)
            return false;
    if (loads && i->space == GLOBAL)
        (void)pass(&w, ".nc");
    i->count = pass(&w, ".v2") ? 2 : pass(&w, ".v4") ? 4 : 1;
    i->size = (uint8_t)ptx_type(w, &is_signed);
    i->kind = is_signed;
    return i->size > 0;
}
