/* few_bit.c: `ebb few-bit`: the table of a derivative in a few levels. */
#include "cli/cli.h"

static void show(const json_t *o)
{
    const json_t *borders = json_object_get(o, "borders"), *levels = json_object_get(o, "levels");
    printf("%s, %.0f bits, %s\n", cli_text(o, "function"), cli_real(o, "bits"),
           cli_text(o, "weight"));
    for (size_t i = 0; i < json_array_size(levels); i++) {
        const json_t *border = json_array_get(borders, i);
        printf("  %12.6f", json_number_value(json_array_get(levels, i)));
        if (border != NULL)
            printf("   up to %12.6f", json_number_value(border));
        printf("\n");
    }
    printf("squared error %.6f, largest %.4f; rms for N(0, 1) %.4f\n", cli_real(o, "squared_error"),
           cli_real(o, "largest_error"), cli_real(o, "rms_normal"));
}

int cli_few_bit(const cli *c)
{
    const char *function = cli_get(c, "--function", NULL);
    const char *weight = cli_get(c, "--weight", "flat");
    char *json = NULL;
    if (function == NULL)
        return cli_usage("say which function: --function gelu");
    if (cli_has(c, "--alpha") && strcmp(function, "silu") != 0 && strcmp(function, "elu") != 0)
        return cli_usage("--alpha is of silu and elu; %s has none", function);
    if (strcmp(weight, "flat") != 0 && strcmp(weight, "normal") != 0)
        return cli_usage("--weight is flat or normal, not '%s'", weight);
    ebb_status status =
        ebb_few_bit_json(function, cli_number(c, "--alpha", 1), (unsigned)cli_whole(c, "--bits", 3),
                         strcmp(weight, "normal") == 0, &json);
    return status != NULL ? cli_fail(status) : cli_show(c, json, show);
}
