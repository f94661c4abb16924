/* run.c: `ebb run`: a graph is evaluated once on arrays from a file. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static bool lists_input(const ebb_model_facts *facts, const char *name)
{
    for (size_t i = 0; i < facts->input_count; i++)
        if (strcmp(facts->inputs[i].name, name) == 0)
            return true;
    return false;
}

static ebb_status save_outputs(ebb_program *program, const char *path)
{
    size_t count = ebb_program_output_count(program);
    ebb_named *list = calloc(count + 1, sizeof *list);
    ebb_status status = NULL;
    for (size_t i = 0; i < count && list != NULL && status == NULL; i++)
        status = ebb_program_get(program, ebb_program_output_name(program, i), &list[i]);
    if (status == NULL && list != NULL)
        status = ebb_tensors_save(path, list, count, NULL);
    free(list);
    return status;
}

static ebb_status print_outputs(ebb_program *program)
{
    ebb_status status = NULL;
    for (size_t i = 0; i < ebb_program_output_count(program); i++) {
        ebb_named t;
        status = ebb_program_get(program, ebb_program_output_name(program, i), &t);
        if (status != NULL)
            break;
        printf("%-40s %s[", t.name, ebb_dtype_text(t.dtype));
        for (int d = 0; d < t.rank; d++)
            printf("%s%lld", d > 0 ? "," : "", (long long)t.dims[d]);
        printf("]");
        if (t.rank == 0)
            printf(" = %.7g", ebb_element(&t, 0));
        printf("\n");
    }
    return status;
}

/* What print_outputs says, as one object; profile: JSON text, or NULL. */
static ebb_status print_json(ebb_program *program, const char *profile)
{
    ebb_status status = NULL;
    json_t *outputs = json_array();
    for (size_t i = 0; status == NULL && i < ebb_program_output_count(program); i++) {
        ebb_named t;
        json_t *dims = json_array();
        status = ebb_program_get(program, ebb_program_output_name(program, i), &t);
        const bool there = status == NULL;
        for (int d = 0; there && d < t.rank; d++)
            (void)json_array_append_new(dims, json_integer((json_int_t)t.dims[d]));
        json_t *o = there ? json_pack("{s:s, s:s, s:O}", "name", t.name, "dtype",
                                      ebb_dtype_text(t.dtype), "dims", dims)
                          : NULL;
        if (o != NULL && t.rank == 0) {
            json_t *value = json_real(ebb_element(&t, 0));
            (void)json_object_set_new(o, "value", value != NULL ? value : json_null());
        }
        json_decref(dims);
        if (o != NULL)
            (void)json_array_append_new(outputs, o);
    }
    json_t *all = json_pack("{s:s, s:o}", "schema", "ebb.run/1", "outputs", outputs);
    if (profile != NULL)
        (void)json_object_set_new(all, "profile", json_loads(profile, 0, NULL));
    if (status == NULL)
        cli_print_json(all, JSON_INDENT(2));
    json_decref(all);
    return status;
}

/* A model to be run on these arrays: tidied, and its sizes found from their values where they need
 * that. */
static ebb_status settle(const cli *c, ebb_model *model, const ebb_batch *batch)
{
    char lora[1200];
    size_t bound = 1;
    ebb_status status = ebb_bind_defaults(model, batch, &bound);
    if (status == NULL)
        status = ebb_rewrite(model, "flatten,fold", NULL, NULL);
    bound = 1;
    for (int round = 0; status == NULL && bound > 0 && round < 8; round++) {
        status = ebb_bind_values(model, batch, &bound);
        if (status == NULL && bound > 0)
            status = ebb_rewrite(model, "fold,unroll,fold", NULL, NULL);
    }
    if (status == NULL && cli_has(c, "--adapter")) {
        (void)snprintf(lora, sizeof lora, "lora:file=\"%.1150s\"", cli_get(c, "--adapter", NULL));
        status = ebb_rewrite(model, lora, NULL, NULL);
    }
    return status;
}

/* Leaves those out that were inputs and are none any more: their values are in the model. */
static ebb_status leave_out_bound(const ebb_model_facts *before, const ebb_model *model,
                                  ebb_batch *batch, ebb_named *list)
{
    ebb_model_facts *now;
    ebb_status status = ebb_facts_of(&now, model);
    size_t kept = 0;
    for (size_t i = 0; status == NULL && i < batch->count; i++)
        if (lists_input(now, list[i].name) || !lists_input(before, list[i].name))
            list[kept++] = list[i];
    batch->count = kept;
    ebb_release(now);
    return status;
}

static ebb_status run_once(const cli *c, ebb_model *model, ebb_data *data, const cli_map *map)
{
    ebb_program *program = NULL;
    char *profile = NULL;
    ebb_batch batch = {0};
    ebb_model_facts *before;
    ebb_status status = ebb_facts_of(&before, model);
    if (status == NULL)
        status = ebb_data_whole(data, model, map->pairs, &batch);
    cli_notes(data, NULL);
    ebb_named *list = calloc(batch.count + 1, sizeof *list);
    batch.count = list != NULL ? batch.count : 0;
    for (size_t i = 0; i < batch.count; i++)
        list[i] = batch.tensors[i];
    batch.tensors = list;
    for (size_t i = 0; i < batch.count && status == NULL; i++)
        if (lists_input(before, list[i].name)) // it may have open dims
            status = ebb_set_shape(model, list[i].name, list[i].dims, list[i].rank);
    // what has a backward is the plan: it is run as it stands
    if (status == NULL && !before->is_step && !before->has_gradient)
        status = settle(c, model, &batch);
    if (status == NULL)
        status = leave_out_bound(before, model, &batch, list);
    ebb_release(before);
    const ebb_compile_options options = {
        .backend = cli_backend(c),
        .seed = cli_seed(c),
        .threads = cli_threads(c),
        .profile = cli_has(c, "--profile"),
        .spill = cli_get(c, "--spill", NULL),
        .spill_unchecked = cli_has(c, "--spill-unchecked"),
    };
    if (status == NULL)
        status = ebb_program_compile(&program, model, &options);
    if (status == NULL)
        cli_tell_compiled(c, program);
    if (status == NULL)
        status = ebb_program_step(program, &batch);
    free(list);
    if (status == NULL && cli_has(c, "--save"))
        status = save_outputs(program, cli_get(c, "--save", NULL));
    if (status == NULL && options.profile)
        status = ebb_program_profile_json(program, &profile);
    if (status == NULL && cli_has(c, "--json"))
        status = print_json(program, profile);
    else if (status == NULL)
        status = print_outputs(program);
    if (profile != NULL && !cli_has(c, "--json"))
        (void)cli_show(c, profile, cli_show_profile); // which releases it
    else
        ebb_release(profile);
    ebb_program_free(program);
    return status;
}

int cli_run(const cli *c)
{
    ebb_model *model = NULL;
    ebb_data *data = NULL;
    cli_map map;
    if (!cli_has(c, "--data"))
        return cli_usage("say what to run it on: --data FILE");
    const char *end = strrchr(cli_get(c, "--save", ""), '.');
    if (end != NULL && (strcmp(end, ".npz") == 0 || strcmp(end, ".npy") == 0))
        return cli_usage("--save writes a safetensors file, no %s: give it that ending", end);
    if (!cli_read_map(c, "--map", &map)) {
        cli_free_map(&map);
        return EBB_USAGE;
    }
    ebb_status status = cli_open_whole(c, &model);
    if (status == NULL)
        status = cli_open_data(c, "--data", false, model, &data);
    if (status == NULL)
        status = run_once(c, model, data, &map);
    cli_free_map(&map);
    ebb_data_close(data);
    ebb_close(model);
    return status != NULL ? cli_fail(status) : EBB_OK;
}
