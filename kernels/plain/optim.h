/* optim.h: what calls of AdamW and Momentum say of the step, whatever their states are stored in. */
#pragma once

#include "kernels/operand.h"

typedef struct ebb_adamw {
    double keep; /* 1 - lr * weight_decay */
    double alpha, beta, epsilon;
    double step;  /* lr / (1 - alpha^t) */
    double scale; /* 1 / sqrt(1 - beta^t) */
} ebb_adamw;

typedef struct ebb_momentum {
    double rate, alpha, beta, decay;
} ebb_momentum;

ebb_adamw ebb_adamw_read(const ebb_call *c);       /* of (lr, T, ...) */
ebb_momentum ebb_momentum_read(const ebb_call *c); /* of (R, T, ...) */
