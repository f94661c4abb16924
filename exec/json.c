/* json.c: see json.h. */
#include "exec/json.h"

ebb_status ebb_json_dump(const json_t *root, char **text)
{
    *text = NULL;
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(9), size = 0;
    if (root != NULL)
        size = json_dumpb(root, NULL, 0, flags);
    EBB_GOT(size != 0);
    char *out = ebb_alloc(size + 1);
    EBB_GOT(out);
    if (json_dumpb(root, out, size, flags) != size) {
        ebb_free(out);
        return ebb_error_memory();
    }
    out[size] = '\0';
    *text = out;
    return NULL;
}
