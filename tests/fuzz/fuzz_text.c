/* fuzz_text.c: the parser of ONNX text and the printer. What is accepted is printed, and what was
 * printed is accepted again.
 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "onnx/file/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ebb_model *model = NULL, *again = NULL;
    char *text = malloc(size + 1), *printed = NULL;
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (ebb_text_parse_model(&model, text) == NULL) {
        if (ebb_text_print_model(&printed, model) == NULL) {
            fuzz_must(ebb_text_parse_model(&again, printed), printed);
            ebb_model_free(again);
            ebb_free(printed);
        }
        ebb_model_free(model);
    }
    free(text);
    return 0;
}
