/* decode.h: what the decoder's files share: spellings of opcodes, and the names that a function has so far.
 *
 *     spelling.c   an opcode by its whole spelling
 *     names.c      registers, variables, labels, constants: a word to an operand
 *     decode.c     statements: a function's text to instructions
 */
#pragma once

#include "tests/cuda/ptx/ptx.h"

typedef struct spelling {
    const char *text;
    uint32_t length;
    uint16_t op;
    uint8_t count;
    bool taken;
} spelling;

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

/* spelling.c. What is read is false where the word is another opcode. */
uint32_t ptx_hash(const char *text, uint32_t length);
void ptx_fill_spellings(void); /* before the first look */
spelling *ptx_look(const char *text, uint32_t length);
bool ptx_read_access(word w, instruction *i); /* ld, st */
bool ptx_read_atomic(word w, instruction *i);

/* names.c. False: refused, and ptx_fail() has been told why. */
bool ptx_more(void *list, uint32_t count, uint32_t *room, size_t size); /* room for one more */
bool ptx_refuse(const decoding *d, word w, const char *why);
const variable *ptx_frame_variable(const decoding *d, word w); /* or NULL */
bool ptx_expect(decoding *d, const char *sign);
bool ptx_take(decoding *d, word w, operand *to);
bool ptx_next_operand(decoding *d, operand *to);
bool ptx_take_vector(decoding *d, operand *list, uint32_t count, bool writes);
bool ptx_take_address(decoding *d, instruction *i);
label *ptx_label_of(decoding *d, word w); /* NULL: no memory */
