/* devices.c: ebb devices; and which back end the options ask for. */
#include "cli/cli.h"

const char *cli_backend(const cli *c)
{
    static char text[128];
    const char *device = cli_get(c, "--device", NULL);
    const char *name = cli_get(c, "--backend", device != NULL ? "cuda" : NULL);
    const char *by = cli_get(c, "--fp32-by", NULL), *words[] = {device, NULL, by};
    words[1] = cli_has(c, "--tf32") ? "tf32" : NULL;
    if (name == NULL)
        name = words[1] != NULL ? "cuda" : by != NULL ? "cpu" : NULL;
    if (name == NULL)
        return NULL;
    size_t length = (size_t)snprintf(text, sizeof text, "%s", name);
    char before = ':';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i] == NULL || length >= sizeof text)
            continue;
        length += (size_t)snprintf(text + length, sizeof text - length, "%c%s", before, words[i]);
        before = '+';
    }
    return text;
}

static void show(const json_t *o)
{
    size_t i;
    json_t *row;
    char total[32], unused[32];
    json_array_foreach(json_object_get(o, "devices"), i, row) {
        bool there = json_is_true(json_object_get(row, "available"));
        printf("%-6s %s\n", cli_text(row, "backend"),
               there ? cli_text(row, "name") : cli_text(row, "reason"));
        if (cli_text(row, "help")[0] != '\0')
            printf("       hint: %s\n", cli_text(row, "help"));
        if (cli_text(row, "libraries")[0] != '\0')
            printf("       with %s\n", cli_text(row, "libraries"));
        if (cli_text(row, "kernels")[0] != '\0')
            printf("       kernels for: %s\n", cli_text(row, "kernels"));
        if (there && json_object_get(row, "total_bytes") != NULL)
            printf("       compute capability %.1f, %s of %s free, driver for CUDA %.0f.%.0f\n",
                   cli_real(row, "version") / 100, cli_bytes(unused, cli_real(row, "free_bytes")),
                   cli_bytes(total, cli_real(row, "total_bytes")),
                   (double)((int)cli_real(row, "driver") / 1000),
                   (double)((int)cli_real(row, "driver") % 1000 / 10));
    }
    if (json_array_size(json_object_get(o, "described")) == 0)
        return;
    printf("plans by --device:");
    json_array_foreach(json_object_get(o, "described"), i, row)
        printf(" %s", json_string_value(row));
    printf("\n");
}

int cli_devices(const cli *c)
{
    char *json = NULL;
    ebb_status status = ebb_devices_json(&json);
    return status == NULL ? cli_show(c, json, show) : cli_fail(status);
}
