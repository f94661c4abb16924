/* chain_source.h: what chain.cu and chain_source.cu agree on. */
#pragma once

#include "kernels/cuda/fuse/chain.h"

EBB_C_BEGIN

/* Both compiled here and written into the source. The first `packed` elements are taken in packs.
 */
#define EBB_CHAIN_ARGS(AS)      \
    AS(typedef struct {         \
        int64_t n, packed;      \
        int64_t dims[12];       \
        int64_t stride[16][12]; \
        const void *in[16];     \
        void *out[8];           \
    } ebb_chain_args;)
#define EBB_CHAIN_AS_IT_IS(...) __VA_ARGS__
EBB_CHAIN_ARGS(EBB_CHAIN_AS_IT_IS)

typedef enum ebb_chain_way {                  /* how an input is read */
                             EBB_CHAIN_DENSE, /* at the element's own index */
                             EBB_CHAIN_ONE,   /* one value for all */
                             EBB_CHAIN_ROWS,  /* dense along the innermost dim */
                             EBB_CHAIN_SPLAT  /* one value along the innermost dim */
} ebb_chain_way;

typedef struct ebb_chain_walk {
    int rank, lanes; /* of the walk; elements of a pack */
    bool narrow;     /* fewer than 2^31 elements */
    ebb_chain_way way[EBB_CHAIN_INPUTS];
} ebb_chain_walk;

void ebb_chain_walk_make(const ebb_chain *chain, ebb_chain_walk *walk, int64_t *dims,
                         int64_t (*stride)[EBB_MAX_RANK]);

uint8_t ebb_chain_dtype(const ebb_chain *chain, int value);

EBB_C_END
