/* ptx.h: what nvcc emits, executed without a GPU.
 *
 *     parse.c      text -> modules: where each function begins, constants, files' names
 *     decode.c     a function's text -> instructions, when it is first needed
 *     ops.def      one row an opcode: spellings, operands' types, value
 *     execute.c    a warp: 32 lanes in step, apart where they branch
 *     value.c      ... what an instruction makes of each lane's registers
 *     access.c     ... and of memory
 *     memory.c     what an address is; races, bounds, alignment, reads of what nobody wrote
 *     launch.c     grids and blocks; which entry a kernel of the host is
 *
 * Whatever is not in a table is refused with the line of the text: nothing is guessed.
 *
 * The lanes of a warp that are at one instruction go on together. Of several groups the one goes
 * first that is earliest in the text, so that they meet again where branches join; a function that
 * is called lies where it is called.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 32, MAX_WARPS = 32, MAX_VECTOR = 4 };

typedef union cell { /* a register of one lane */
    uint8_t u8;
    int8_t s8;
    uint16_t u16;
    int16_t s16;
    uint32_t u32;
    int32_t s32;
    uint64_t u64;
    int64_t s64;
    float f32;
    double f64;
} cell;

/* ---- instructions ---- */

typedef enum opcode {
#define ROW(name, count, spellings, D, A, B, C, value) OP_##name,
#include "tests/cuda/ptx/ops.def"
#undef ROW
    OP_ROWS, /* below: those that are more than a value of each lane */
    OP_BRA = OP_ROWS,
    OP_CALL, /* until it is decoded: what is called lies in its place */
    OP_RET,
    OP_TRAP,
    OP_BAR,
    OP_SHFL,
    OP_VOTE,
    OP_LD,
    OP_ST,
    OP_ATOM,
    OP_PACK,
    OP_UNPACK,
    OP_BFI,
} opcode;

typedef enum space { GLOBAL, SHARED, LOCAL, PARAM } space;

/* An operand: 0 and up: a register of the frame. Below: ~x is a row of the warp's special
 * registers, and behind these of the function's constants. */
typedef int32_t operand;

typedef enum special { TID_X, NTID_X, CTAID_X, CTAID_Y, NCTAID_X, ZERO, SPECIALS } special;

typedef struct instruction {
    uint16_t op;
    uint8_t space;
    uint8_t size;  /* of what is loaded, stored, exchanged, put together: bytes of one */
    uint8_t count; /* of a vector */
    uint8_t kind;  /* ld: is signed; shfl, atom: which; bra: its label is still to be found */
    bool negated;  /* the predicate is */
    bool has_run;  /* for who looks at what no test comes to */
    operand guard; /* the predicate; ZERO's: none */
    operand d, a, b, c;
    operand more[MAX_VECTOR];
    int64_t offset; /* of an address; the target of a branch */
    uint32_t line;  /* of the module's text */
    uint32_t place; /* file << 20 | line of the source */
} instruction;

typedef struct variable { /* in local memory or in the kernel's arguments */
    const char *name;
    uint32_t length, offset, bytes;
    space space;
} variable;

typedef struct function {
    const char *name; /* in the text */
    uint32_t name_length;
    const char *header;
    uint32_t line; /* of the header */
    bool is_entry, is_decoded;
    bool counts_blocks; /* reads how many there are */
    struct module *module;
    instruction *code; /* with that of the functions which it calls, each where it is called */
    uint32_t length;
    uint32_t registers, frame_bytes, param_bytes, most_threads;
    cell (*constants)[LANES];
    uint32_t constant_count;
} function;

typedef struct symbol { /* of a module: in the memory of the device, or shared */
    const char *name;
    uint32_t length;
    bool is_shared;
    uint8_t *data; /* NULL: shared, at `offset` */
    uint64_t bytes, offset;
} symbol;

typedef struct module {
    char *text;
    function *functions;
    uint32_t function_count, function_room;
    symbol *symbols;
    uint32_t symbol_count, symbol_room;
    char *files[256];
    uint64_t shared_bytes;
} module;

/* ---- errors: the first stays, as text ---- */

extern char ptx_error[1024];
bool ptx_fail(const char *format, ...) __attribute__((format(printf, 1, 2))); /* false */

/* ---- parse.c ---- */

module *ptx_parse(char *text); /* of malloc(), and the module's then. NULL: an error was told */
void ptx_free(module *m);
bool ptx_more(void *list, uint32_t count, uint32_t *room, size_t size); /* room for one more */
function *ptx_find(module *m, const char *name, size_t length);
const symbol *ptx_symbol(const module *m, const char *name, size_t length);
const char *ptx_source(const module *m, uint32_t place, char *text, size_t size);

typedef struct reader { /* words of a text, one after another */
    const char *at;
    uint32_t line;
} reader;

typedef struct word {
    const char *at;
    uint32_t length;
} word;

bool ptx_next(reader *r, word *w); /* false: the end; a name, a number or one sign */
bool ptx_is(word w, const char *text);
bool ptx_number(word w, uint64_t *value);   /* 12, 0x1F, 0f3F800000, 0d... */
uint32_t ptx_type(word w, bool *is_signed); /* .u8: its bytes; 0: none */
bool ptx_declare(reader *r, word first, variable *v, uint32_t *align); /* .align .b8 x[3] */

/* ---- decode.c ---- */

bool ptx_decode(function *f);

/* ---- memory.c ---- */

typedef struct block_run {           /* what the memory must know of who asks */
    uint32_t launch, serial, number; /* serial: of blocks since the start */
    uint32_t epoch;                  /* barriers passed */
    const uint8_t *args;
    uint64_t args_bytes;
    uint8_t *shared;
    uint64_t shared_bytes;
} block_run;

typedef struct seeing {
    uint32_t thread, round;
    bool writes, atomic;
} seeing;

void ptx_allocated(const void *memory, size_t bytes, bool is_written);
void ptx_released(const void *memory);
void ptx_written(const void *memory, size_t bytes);
/* NULL: an error was told. */
void *ptx_global(const block_run *b, uint64_t address, uint32_t bytes, seeing who);
void *ptx_shared(const block_run *b, uint64_t address, uint32_t bytes, seeing who);

/* ---- execute.c ---- */

enum { LOCAL_BYTES = 64 * 1024, FRAME_CELLS = 1 << 16 };

typedef enum state { READY, AT_BARRIER, DONE } state;

typedef struct warp {
    function *f;
    cell (*cells)[LANES];
    cell special[SPECIALS][LANES];
    uint32_t carry[LANES];
    uint8_t *local; /* LOCAL_BYTES a lane */
    uint32_t pc[LANES];
    uint32_t alive, waits; /* lanes; of those alive, which wait for others of the warp */
    uint32_t round;
    state state;
    uint32_t barrier;
    uint32_t number;
} warp;

typedef struct machine {
    block_run block;
    warp *warps[MAX_WARPS];
    uint64_t executed, end; /* instructions of threads: so far, and where a launch is given up */
} machine;

void ptx_start(warp *w, function *entry, uint32_t threads);
/* Up to so many steps, or to a barrier or the end. */
bool ptx_run(machine *m, warp *w, uint32_t steps);
extern uint64_t ptx_seed;
