/* fuzz_read.c: the reader and the writer. What is accepted is written, and what was written is
 * accepted again.
 */
#include "tests/fuzz/fuzz.h"

#include "onnx/file/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ebb_model *model = NULL, *again = NULL;
    void *bytes = NULL;
    size_t count = 0;
    if (ebb_model_read_memory(&model, data, size, NULL) != NULL)
        return 0;
    if (ebb_model_write_memory(model, &bytes, &count) == NULL) {
        fuzz_must(ebb_model_read_memory(&again, bytes, count, NULL), "reading what was written");
        ebb_model_free(again);
        ebb_free(bytes);
    }
    ebb_model_free(model);
    return 0;
}
