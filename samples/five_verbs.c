/* five_verbs.c: the library in one page: open, rewrite, save, compile, step.
 *
 *     five_verbs samples/digits/cnn.onnx samples/digits/digits.npz
 */
#include <stdio.h>

#include "ebb.h"

#define TRY(call)                                              \
    do {                                                       \
        ebb_status status_ = (call);                           \
        if (status_ != NULL) {                                 \
            fprintf(stderr, "%s\n", ebb_status_text(status_)); \
            return ebb_status_code(status_);                   \
        }                                                      \
    } while (0)

enum { BATCH = 32, EPOCHS = 3, ROWS = 1437 };

int main(int count, char **words)
{
    static const char *const passes[] = {"sign-mask", "dropout-seed", NULL};
    static const ebb_step_options step = {
        .loss = "cross-entropy", .optimizer = "adamw:lr=0.003", .passes = passes};
    static const char *const feeds[] = {"image", "image", "label", "target", NULL};
    char *pipeline;
    ebb_model *model;
    ebb_program *program;
    ebb_data *data;
    int64_t order[ROWS];
    if (count != 3)
        return fprintf(stderr, "usage: five_verbs MODEL DATA\n"), EBB_USAGE;
    TRY(ebb_open(&model, words[1]));
    TRY(ebb_set_dim(model, "batch", BATCH));
    TRY(ebb_step_pipeline(&pipeline, &step));
    TRY(ebb_rewrite(model, pipeline, NULL, NULL));
    ebb_release(pipeline);
    TRY(ebb_save(model, "step.onnx"));
    TRY(ebb_program_compile(&program, model, NULL));
    TRY(ebb_data_open(&data, words[2], model));
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        double loss = 0;
        for (int64_t i = 0; i < ROWS; i++)
            order[i] = i;
        ebb_shuffle(order, ROWS, 1, epoch);
        for (int at = 0; at + BATCH <= ROWS; at += BATCH) {
            ebb_batch batch;
            ebb_named value;
            TRY(ebb_data_rows(data, order + at, BATCH, feeds, &batch));
            TRY(ebb_program_step(program, &batch));
            TRY(ebb_program_get(program, "loss", &value));
            loss = ebb_element(&value, 0);
        }
        printf("epoch %d: last loss %.4f\n", (int)epoch + 1, loss);
    }
    ebb_program_free(program);
    ebb_data_close(data);
    ebb_close(model);
    return 0;
}
