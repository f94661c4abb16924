/* adapters_peft.c: a folder of adapters that PEFT loads: what stands beside their tensors.
 *
 *     {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["model.layers.0.mlp.up_proj", ...]}
 *
 * Modules are named in full, so that no other is meant; the rank and alpha that most have are r and
 * lora_alpha, others are in rank_pattern and alpha_pattern.
 */
#include "exec/data/adapters.h"
#include "onnx/file/sink.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <jansson.h>

bool ebb_adapters_is_folder(const char *path)
{
    struct stat is;
    const char *last = strrchr(path, '/');
    if (stat(path, &is) == 0)
        return S_ISDIR(is.st_mode);
    return last != NULL && last[1] == '\0' ? true : strchr(last != NULL ? last : path, '.') == NULL;
}

/* One whole number is written as such, as PEFT does. */
static json_t *number(double x)
{
    const double rounded = round(x);
    return fabs(x - rounded) <= 1e-9 * fabs(x) ? json_integer((json_int_t)rounded) : json_real(x);
}

static json_t *config_of(const ebb_adapter_facts *list, size_t count, const char *const *whole,
                         size_t whole_count)
{
    json_t *targets = json_array(), *ranks = json_object(), *alphas = json_object();
    json_t *kept = whole_count > 0 ? json_array() : json_null();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(targets, json_string(list[i].module));
        if (list[i].rank != list[0].rank)
            (void)json_object_set_new(ranks, list[i].module,
                                      json_integer((json_int_t)list[i].rank));
        if (list[i].alpha != list[0].alpha)
            (void)json_object_set_new(alphas, list[i].module, number(list[i].alpha));
    }
    for (size_t i = 0; i < whole_count; i++)
        (void)json_array_append_new(kept, json_string(whole[i]));
    return json_pack( // a group size beside use_qalora false is PEFT's own default
        "{s:s, s:n, s:s, s:b, s:b, s:b, s:o, s:f, s:o, s:I, s:o, s:o, s:o, s:n, s:b, s:b, s:b, "
        "s:I}",
        "peft_type", "LORA", "base_model_name_or_path", "bias", "none", "fan_in_fan_out", 0,
        "inference_mode", 1, "init_lora_weights", 1, "lora_alpha", number(list[0].alpha),
        "lora_dropout", 0.0, "modules_to_save", kept, "r", (json_int_t)list[0].rank,
        "target_modules", targets, "rank_pattern", ranks, "alpha_pattern", alphas, "task_type",
        "use_dora", (int)list[0].has_lengths, "use_rslora", (int)list[0].by_root, "use_qalora",
        list[0].block > 0, "qalora_group_size",
        (json_int_t)(list[0].block > 0 ? list[0].block : 16));
}

ebb_status ebb_adapters_write_config(const char *folder, const ebb_adapter_facts *list,
                                     size_t count, const char *const *whole, size_t whole_count)
{
    EBB_LOCAL_ARENA(arena);
    json_t *o = config_of(list, count, whole, whole_count);
    char *text = o != NULL ? json_dumps(o, JSON_INDENT(2)) : NULL;
    char *path = ebb_arena_printf(arena, "%s/adapter_config.json", folder);
    ebb_status status = text == NULL || path == NULL ? ebb_error_memory() : NULL;
    if (status == NULL && mkdir(folder, 0777) != 0 && errno != EEXIST)
        status = ebb_error_io(folder, "making the folder");
    if (status == NULL)
        status = ebb_sink_text(path, text);
    free(text);
    json_decref(o);
    return status;
}

ebb_status ebb_adapters_known(const char *path)
{
    static const char known[] = ".safetensors";
    const size_t length = strlen(path), end = sizeof known - 1;
    const char *last = strrchr(path, '/');
    if (strchr(last != NULL ? last : path, '.') == NULL || ebb_adapters_is_folder(path) ||
        ebb_adapters_is_ort(path) || (length > end && strcmp(path + length - end, known) == 0))
        return NULL;
    return ebb_hint(
        ebb_error(EBB_USAGE, "%s: adapters are not saved to a file of this ending", path),
        "FILE.safetensors, FILE.onnx_adapter (ONNX Runtime's), or a folder that PEFT "
        "loads: a name that ends in '/', or without an ending");
}

EBB_API ebb_status ebb_adapters_check(const char *path)
{
    EBB_NEED(path);
    EBB_TRY(ebb_adapters_known(path));
    struct stat is;
    EBB_LOCAL_ARENA(arena);
    const char *file = path;
    if (stat(path, &is) == 0 && S_ISDIR(is.st_mode))
        file = ebb_arena_printf(arena, "%s/adapter_model.safetensors", path);
    else if (ebb_adapters_is_folder(path)) // beside which it will stand
        file = ebb_arena_printf(arena, "%.*s",
                                (int)(strlen(path) - (path[strlen(path) - 1] == '/')), path);
    return file != NULL ? ebb_sink_check(file) : ebb_error_memory();
}
