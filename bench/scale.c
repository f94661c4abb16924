/* scale.c: writes a model of many nodes, in one of the forms of bench/scale.h, as ONNX.
 *
 *     bench_scale FORM NODES FILE
 *
 * bench/scale.sh measures what check, grad and plan take for them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/file/file.h"
#include "bench/scale.h"

static int write_model(const char *name, size_t nodes, const char *path)
{
    for (size_t k = 0; k < SCALE_FORMS; k++) {
        if (strcmp(scale_forms[k].name, name) != 0)
            continue;
        char *text = NULL;
        size_t bytes = 0;
        FILE *f = open_memstream(&text, &bytes);
        if (f == NULL)
            return 1;
        scale_write(f, &scale_forms[k], nodes);
        fclose(f);
        ebb_model *model = NULL;
        ebb_status status = ebb_text_parse_model(&model, text);
        if (status == NULL)
            status = ebb_model_write(model, path, NULL);
        if (status != NULL)
            fprintf(stderr, "%s\n", ebb_status_text(status));
        free(text);
        return status != NULL;
    }
    return 2; // no such form
}

int main(int argc, char **argv)
{
    if (argc == 4)
        return write_model(argv[1], strtoul(argv[2], NULL, 10), argv[3]);
    fprintf(stderr, "usage: bench_scale FORM NODES FILE\n");
    return 2;
}
