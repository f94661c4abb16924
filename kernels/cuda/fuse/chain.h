/* chain.h: several pointwise operators in one kernel, whose source is written for them.
 *
 *     ebb_chain_begin(&chain, &shape);                      every value has this shape
 *     ebb_chain_input(&chain, &type, &x);                   read from memory, broadcast to it
 *     ebb_chain_step(&chain, call, (int[]){x, b}, &sum);    an operator of the graph
 *     ebb_chain_step(&chain, next, (int[]){sum}, &y);
 *     ebb_chain_store(&chain, y);                           written to memory
 *     ebb_chain_open(&chain, 900, &kernel);                 source, compiler or cache, module
 *     ebb_chain_run(&chain, &kernel, stream, in, out);      for any operands of these types
 *
 * Formulas are those of kernels/math/pointwise.def, products and sums are not contracted, and steps of 16 bits
 * are rounded between: a chain gives the bits that its operators give one by one.
 */
#pragma once

#include "kernels/call/pointwise.h"
#include "kernels/cuda/cuda.h"

EBB_C_BEGIN

enum { EBB_CHAIN_INPUTS = 16, EBB_CHAIN_STEPS = 48, EBB_CHAIN_OUTPUTS = 8, EBB_CHAIN_HEADERS = 3 };

typedef struct ebb_chain_part { /* one operator */
    ebb_op op;
    ebb_formula_use use;
    bool formula;      /* else Cast or Where */
    uint8_t of, dtype; /* what it computes in, and gives */
    int count;
    int operand[EBB_CUDA_INPUTS]; /* values; -1: absent */
} ebb_chain_part;

typedef struct ebb_chain {
    ebb_type shape;
    int input_count, step_count, output_count;
    ebb_type input[EBB_CHAIN_INPUTS];
    ebb_chain_part step[EBB_CHAIN_STEPS];
    int output[EBB_CHAIN_OUTPUTS];
} ebb_chain;

void ebb_chain_begin(ebb_chain *chain, const ebb_type *shape);

/* Each of these: NULL, or why not; then the chain is as before. *value: how later steps name it. */
const char *ebb_chain_input(ebb_chain *chain, const ebb_type *type, int *value);
/* call: op, attributes, the types of inputs and of output 0; operands: a value for each input, -1
 * where it is absent. Takes float16 to float64 and bool: what pointwise.def has, sums of up to four,
 * and Cast. */
const char *ebb_chain_step(ebb_chain *chain, const ebb_call *call, const int *operands, int *value);
const char *ebb_chain_store(ebb_chain *chain, int value);

/* The source for nvcc, NVRTC and, against host/words.h, C11; to be ebb_free()d. The same for chains
 * that differ in sizes alone. */
ebb_status ebb_chain_source(const ebb_chain *chain, char **source);

/* Where ebb_chain_source() includes files, their text, for a compiler that has none. */
extern const char *const ebb_chain_header_names[EBB_CHAIN_HEADERS];
extern const char *const ebb_chain_header_texts[EBB_CHAIN_HEADERS];

typedef struct ebb_chain_kernel {
    void *module;
    ebb_gpu_kernel kernel;
} ebb_chain_kernel;

/* version: of the device, as ebb_device_facts has it. */
ebb_status ebb_chain_open(const ebb_chain *chain, int version, ebb_chain_kernel *kernel);
void ebb_chain_close(ebb_chain_kernel *kernel);

/* in: an address for each input, in the order that they were put in; out: for each stored value. An
 * output may be the same memory as an input that is not broadcast. */
ebb_status ebb_chain_run(const ebb_chain *chain, const ebb_chain_kernel *kernel, void *stream,
                         const void *const *in, void *const *out);

EBB_C_END
