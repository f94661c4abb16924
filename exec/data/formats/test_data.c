/* test_data.c: the folders that ONNX's tests and model zoo come with. */
#include "exec/data/formats/formats.h"

#include "onnx/file/file.h"

#include <sys/stat.h>

/* input_0.pb, input_1.pb ... of a test_data_set folder. A tensor without a name, and every tensor
 * whose name the model does not know, gets that of the model's input at its place. */
ebb_status ebb_test_data_read(ebb_data *data, const char *path, const ebb_model *model)
{
    const ebb_graph *g = model != NULL ? model->graph : NULL;
    size_t place = 0;
    for (int k = 0;; k++) {
        const char *file = ebb_arena_printf(&data->arena, "%s/input_%d.pb", path, k);
        struct stat facts;
        EBB_GOT(file);
        if (stat(file, &facts) != 0) {
            if (k == 0)
                return ebb_error_io(path, "no input_0.pb in the folder");
            return NULL;
        }
        ebb_tensor tensor = {0};
        const char *name = NULL;
        EBB_TRY(ebb_tensor_read_pb(&tensor, &name, &data->arena, file));
        while (g != NULL && place < g->input_count &&
               (ebb_value_of(g, g->inputs[place])->flags & EBB_IS_INITIALIZER))
            place++;
        bool known = name != NULL && name[0] != '\0' && (g == NULL || ebb_value_find(g, name).i);
        if (!known) {
            if (g == NULL || place >= g->input_count)
                return ebb_error(EBB_REJECTED, "%s: the model has no input number %d", file, k);
            name = ebb_value_name(g, g->inputs[place]);
        }
        place++;
        if (tensor.data == NULL && tensor.bytes != 0)
            return ebb_error(EBB_REJECTED, "%s: the tensor has no bytes", file);
        EBB_TRY(ebb_data_add(data, name, strlen(name), (ebb_dtype)tensor.type.dtype,
                             tensor.type.rank, tensor.type.dims, tensor.data, tensor.bytes));
    }
}
