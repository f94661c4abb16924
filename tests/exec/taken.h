/* taken.h: rows of a file as a model takes them, from opening to the batch. */
#pragma once

#include "tests/exec/data_files.h"
#include "tests/formatted.h"
#include "tests/owned.h"
#include "tests/text.h"

#define IDENTITY_OF(input) "y = Identity (" input ")"

static const int64_t in_order[] = {0, 1, 2, 3, 4, 5, 6, 7};
static ebb_data *data;
static ebb_batch batch;

static inline void closed(void)
{
    ebb_data_close(data);
    data = NULL;
}

/* A model of these inputs, which it gives back. */
static inline ebb_model *model_with(const char *inputs, const char *body)
{
    return model_of(formatted("<ir_version: 10, opset_import: [\"\" : 20]> g (%s) => (y) { %s }",
                              inputs, body));
}

/* Opens, binds, and gives rows; the status of the first call that fails. options may be NULL. */
static inline ebb_status take_rows(const char *path, const char *inputs, const char *body,
                                   const ebb_data_options *options, uint64_t epoch,
                                   const int64_t *index, size_t count)
{
    int64_t rows;
    const char *const paths[] = {path, NULL};
    closed();
    OWNED_MODEL *model = model_with(inputs, body);
    ebb_status status = ebb_data_open_files(&data, paths, options);
    if (status == NULL)
        status = ebb_data_shape(data, model, NULL, (int64_t)count, &rows);
    if (status == NULL)
        status = ebb_data_bind(data, model, NULL);
    if (status == NULL)
        ebb_data_epoch(data, 7, epoch);
    if (status == NULL)
        status = ebb_data_rows(data, index, count, NULL, &batch);
    return status;
}
