/* test_captures.c: a value that only the body of an If reads is read. No pass may take it for one
 * that nobody wants.
 */

#include "onnx/file/file.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/test.h"

/* Whatever makes m, both branches hand it on as z. */
#define HEAD "<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]>\n"
#define BODIES                                                  \
    " z = If <then_branch = yes () => (a) { a = Identity (m) }" \
    ", else_branch = no () => (b) { b = Identity (m) }> (c) }"
#define LINEAR "float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}"
#define NORM "float[4] s = {1,1,1,1}, float[4] t = {0,0,0,0}"
#define IMAGES "bool c, float[2,4,8,8] x"
#define STATISTICS                                                                          \
    "float[4] s = {1,1,1,1}, float[4] t = {0,0,0,0}, float[4] u = {0,0,0,0}, float[4] v = " \
    "{1,1,1,1}"
#define POOL "[pool] y, m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (h)"

static const struct {
    const char *passes, *text;
} rows[] = {
    {"drop-saves", HEAD "g (bool c, float[4,4] x) => (float[4,4] y, z) <float p = {0.5}, bool on = "
                        "{1}> { y, m = Dropout (x, p, on)" BODIES},
    {"drop-saves", HEAD "g (bool c, float[4,4] x) => (float[4,4] y, z) <" NORM
                        "> { y, m = LayerNormalization (x, s, t)" BODIES},
    {"drop-saves", HEAD "g (" IMAGES ") => (float[2,4,4,4] y, z) { h = Neg (x) " POOL BODIES},
    {"fold", HEAD "g (bool c, float[4,4] x) => (float[4,4] y, z) <float p = {0}, bool on = {1}> "
                  "{ h, m = Dropout (x, p, on) y = Neg (h)" BODIES},
    {"train-mode", HEAD "g (bool c, float[4,4] x) => (float[4,4] y, z) <float p = {0.5}, bool on = "
                        "{1}> { y, m = Dropout (x, p, on)" BODIES},
    {"train-mode:dropout=off", HEAD "g (bool c, float[4,4] x) => (float[4,4] y, z) <float p = "
                                    "{0.5}, bool on = {1}> { y, m = Dropout (x, p, on)" BODIES},
    {"train-mode", HEAD "g (" IMAGES ") => (float[2,4,8,8] y, z) <" STATISTICS
                        "> { y, m, n = BatchNormalization <training_mode = 1> (x, s, t, u, "
                        "v)" BODIES},
    {"train-mode:batch-norm=frozen",
     HEAD "g (" IMAGES ") => (float[2,4,8,8] y, z) <" STATISTICS
          "> { y, m, n = BatchNormalization <training_mode = 1> (x, s, t, u, v)" BODIES},
    {"loss:mse,output=y,keep-output=1,gradient,dropout-seed",
     HEAD "g (bool c, float[4,4] x) => (float[4,4] y, z) <" LINEAR ", int64[2] key = {1,0}> { h = "
          "MatMul (x, w) y, m = ai.ebb.Dropout <ratio = 0.5, stream = 3> (h, key)" BODIES},
    {"loss:mse,output=y,keep-output=1,gradient,dropout-mask",
     HEAD "g (bool c, float[4,4] x) => (float[4,4] y, z) <" LINEAR ", int64[2] key = {1,0}> { h = "
          "MatMul (x, w) y, m = ai.ebb.Dropout <ratio = 0.5, stream = 3> (h, key)" BODIES},
    {"loss:mse,output=y,keep-output=1,gradient,pool-index",
     HEAD "g (" IMAGES ") => (float[2,4,4,4] y, z) <float[4,4,1,1] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, "
          "0,0,0,1}> { h = Conv (x, w) " POOL BODIES},
    {"layout", HEAD "g (" IMAGES ") => (float[2,4,4,4] y, z) <float[4,4,1,1] w = {1,0,0,0, "
                    "0,1,0,0, 0,0,1,0, 0,0,0,1}> { h = Conv (x, w) " POOL BODIES},
    {"loss:mse,output=y,keep-output=1,gradient,norm-from-output",
     HEAD "g (bool c, float[4,4] x) => (float[4,4] y, z) <" LINEAR ", " NORM
          "> { h = MatMul (x, w) n, m = LayerNormalization (h, s, t) y = MatMul (n, w)" BODIES},
};

TEST(what_a_body_alone_reads_is_still_made)
{
    const ebb_rewrite_options options = {.verify_each = true};
    int failures = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        OWNED_MODEL *model = NULL;
        OWNED_ARENA keep = {0};
        ebb_report *reports;
        size_t count;
        ebb_status status = ebb_text_parse_model(&model, rows[i].text);
        if (status == NULL)
            status = ebb_pipeline_run(model, rows[i].passes, &options, &keep, &reports, &count);
        ebb_value m = status == NULL ? ebb_value_find(model->graph, "m") : EBB_NO_VALUE;
        if (m.i == 0 || ebb_value_of(model->graph, m)->producer.i == 0) {
            print_error("row %zu, %s: %s\n", i, rows[i].passes,
                        status != NULL ? ebb_status_text(status) : "nothing makes 'm' any more");
            failures++;
        }
    }
    assert_int_equal(failures, 0);
}
