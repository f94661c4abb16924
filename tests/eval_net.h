/* eval_net.h: a network as exporters write it in eval mode, its batch norms folded into the
 * convolutions: each has a bias and a ReLU behind it.
 *
 *     x ─ conv ─ z ─ conv ─ h ─ conv ─ + ─ t ─ conv in groups ─ u ─ pool ─ average ─ y
 *                └─────────────────────┘
 *
 * float32 [2, 8, 8, 8] to [2, 16, 1, 1]; weights are drawn, always the same.
 */
#pragma once

#include <stdio.h>
#include <string.h>

#include "onnx/file/file.h"
#include "tests/status.h"
#include "tests/test.h"
#include "tests/text.h"

enum { EVAL_NET_WEIGHTS = 8, EVAL_NET_RELUS = 4 };

static const struct {
    const char *name, *dims;
    int count, fan_in;
} eval_net_weights[EVAL_NET_WEIGHTS] = {
    {"w", "16,8,3,3", 1152, 72}, {"b", "16", 16, 4},           {"w2", "16,16,3,3", 2304, 144},
    {"b2", "16", 16, 4},         {"w3", "16,16,1,1", 256, 16}, {"b3", "16", 16, 4},
    {"w4", "16,4,1,1", 64, 4},   {"b4", "16", 16, 4},
};

static inline double eval_net_draw(uint64_t *seed) /* in [-1, 1) */
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*seed >> 11) / (double)(INT64_C(1) << 52) - 1;
}

static inline ebb_model *eval_net(void)
{
    enum { ROOM = 96 * 1024 };
    static char text[ROOM];
    uint64_t seed = 3;
    size_t at = (size_t)snprintf(text, ROOM,
                                 "<ir_version: 10, opset_import: [\"\" : 20]>\n"
                                 "g (float[2,8,8,8] x) => (float[2,16,1,1] y) <");
    for (int w = 0; w < EVAL_NET_WEIGHTS; w++) {
        at += (size_t)snprintf(text + at, ROOM - at, "%sfloat[%s] %s = {", w == 0 ? "" : ", ",
                               eval_net_weights[w].dims, eval_net_weights[w].name);
        for (int i = 0; i < eval_net_weights[w].count; i++)
            at += (size_t)snprintf(text + at, ROOM - at, "%s%.9g", i == 0 ? "" : ", ",
                                   2 * eval_net_draw(&seed) / eval_net_weights[w].fan_in);
        at += (size_t)snprintf(text + at, ROOM - at, "}");
    }
    (void)snprintf(text + at, ROOM - at,
                   ">\n{ c = Conv <pads = [1, 1, 1, 1]> (x, w, b) z = Relu (c)\n"
                   "  c2 = Conv <pads = [1, 1, 1, 1]> (z, w2, b2) h = Relu (c2)\n"
                   "  c3 = Conv (h, w3, b3) s = Add (c3, z) t = Relu (s)\n"
                   "  c4 = Conv <group = 4> (t, w4, b4) u = Relu (c4)\n"
                   "  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (u)\n"
                   "  y = GlobalAveragePool (p) }");
    ebb_model *m = parsed(text);
    return m;
}
