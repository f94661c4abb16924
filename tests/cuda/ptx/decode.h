/* decode.h: what the decoder's files share: spellings of opcodes, and the names that a function has so far.
 *
 *     spelling.c   an opcode by its whole spelling
 *     names.c      registers, variables, labels, constants: a word to an operand
 *     decode.c     statements: a function's text to instructions
 *
 * The first error stays (ptx_fail()); what is read after it does not matter.
 */
#pragma once

#include "tests/cuda/ptx/ptx.h"

typedef struct spelling {
    const char *text;
    uint32_t length;
    uint16_t op;
    uint8_t kind;
    const char *form; /* of its operands: decode.c */
    bool taken;
} spelling;

typedef struct registers { /* %r<10>, or one alone: count 0 */
    const char *prefix;
    uint32_t length, first, count;
} registers;

typedef struct label {
    word name;
    uint32_t at; /* NOWHERE: not come to yet */
} label;

enum { NOWHERE = UINT32_MAX >> 1 };

typedef struct scope {
    uint32_t variables, sets, registers, bytes;
} scope;

typedef struct decoding {
    function *f;
    reader r;
    registers *sets;
    uint32_t set_count, set_room;
    variable *variables;
    uint32_t variable_count, variable_room;
    label *labels; /* of what is being read, and of who calls it */
    uint32_t first_label, label_count, label_room;
    uint32_t room, constant_room;
    uint32_t place;
    uint32_t registers, bytes; /* in use now: scopes use the same ones again */
    scope scopes[8];
    uint32_t depth;
} decoding;

/* spelling.c. False: the word is another opcode. */
bool ptx_look(word w, spelling *s);
bool ptx_read_access(word w, instruction *i); /* ld, st */

/* names.c */
void ptx_refuse(const decoding *d, word w, const char *why);
bool ptx_good(void); /* nothing was refused */
word ptx_word(decoding *d);
bool ptx_meets(decoding *d, const char *sign); /* it is next, and is passed */
void ptx_expect(decoding *d, const char *sign);
void ptx_add_variable(decoding *d, word type);     /* of the frame */
const variable *ptx_variable(decoding *d, word w); /* or NULL */
operand ptx_take(decoding *d, word w);
uint8_t ptx_take_vector(decoding *d, operand *list, bool writes); /* how many */
void ptx_take_address(decoding *d, instruction *i);
uint32_t ptx_label(decoding *d, word w);
