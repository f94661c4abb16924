/* file.c: adapters that are there already.
 *
 *     adapter_model.safetensors    base_model.model.MODULE.lora_A.weight [r, in], lora_B.weight [out, r]
 *     adapter_config.json          {"peft_type": "LORA", "r", "lora_alpha", "use_rslora", ...}
 *
 * are a folder of PEFT; a lone file has rank and alpha in its metadata, as ebb writes it; an .onnx_adapter of ONNX Runtime
 * has MODULE.lora_A.weight [in, r] and MODULE.lora_B.weight [r, out], which is multiplied by the scale already.
 */
#include "passes/primal/lora/adapters.h"

#include <stdio.h>
#include <sys/stat.h>

static const char prefix[] = "base_model.model.", ort_ending[] = ".onnx_adapter";

static bool is_true(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    return value != NULL && !json_is_null(value) && !json_is_false(value);
}

/* What PEFT offers and this pass does not compute. */
static ebb_status check_config(const ebb_lora_file *file)
{
    static const char *const others[] = {"lora_bias", "alora_invocation_tokens",
                                         "trainable_token_indices", "megatron_config"};
    const char *type = json_string_value(json_object_get(file->config, "peft_type"));
    if (type == NULL || strcmp(type, "LORA") != 0)
        return ebb_error(EBB_REJECTED, "lora: %s: peft_type is %s; LORA is read", file->path,
                         type != NULL ? type : "missing");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_true(file->config, others[i]))
            return ebb_error(EBB_UNSUPPORTED,
                             "lora: %s: its adapters have %s, which is not computed", file->path,
                             others[i]);
    return NULL;
}

static ebb_status read_config(ebb_lora_file *file, ebb_arena *scratch)
{
    json_error_t wrong;
    char *path = ebb_arena_printf(scratch, "%s/adapter_config.json", file->path);
    EBB_GOT(path);
    file->config = json_load_file(path, 0, &wrong);
    if (!json_is_object(file->config))
        return ebb_error(EBB_REJECTED, "lora: %s: %s", path,
                         file->config == NULL ? wrong.text : "is no object");
    EBB_TRY(check_config(file));
    const json_t *alpha = json_object_get(file->config, "lora_alpha");
    file->alpha = json_number_value(alpha);
    file->has_alpha = json_is_number(alpha) && file->alpha > 0 && file->alpha <= 1e6;
    file->by_root = is_true(file->config, "use_rslora");
    file->by_blocks = is_true(file->config, "use_qalora");
    file->form = is_true(file->config, "use_dora") ? EBB_LORA_DORA : EBB_LORA_PLAIN;
    return file->has_alpha
               ? NULL
               : ebb_error(EBB_REJECTED, "lora: %s: lora_alpha is no number above 0", path);
}

/* Whether the metadata say so. */
static bool says(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text != NULL && strcmp(text, "true") == 0;
}

/* PEFT knows neither PaCA nor activations that are quantised: to it the adapters are plain, and the metadata say more. */
static void read_metadata(ebb_lora_file *file)
{
    const char *text = ebb_data_metadata(file->data);
    json_t *o = text != NULL ? json_loads(text, 0, NULL) : NULL;
    const char *alpha = json_string_value(json_object_get(o, "lora_alpha"));
    if (says(o, "use_paca"))
        file->form = EBB_LORA_PACA;
    file->outside = says(o, "outside");
    if (file->config == NULL) {
        file->has_alpha =
            alpha != NULL && ebb_real_parse(&file->alpha, alpha, "(0, 1e6]", "lora_alpha") == NULL;
        file->by_root = says(o, "use_rslora");
        file->by_blocks = says(o, "use_qalora");
        file->form = says(o, "use_dora") ? EBB_LORA_DORA : file->form;
    }
    json_decref(o);
}

ebb_status ebb_lora_file_open(ebb_lora_file *file, const char *path, ebb_arena *scratch)
{
    struct stat is;
    *file = (ebb_lora_file){.path = path};
    if (path == NULL)
        return NULL;
    const bool folder = stat(path, &is) == 0 && S_ISDIR(is.st_mode);
    const char *tensors =
        folder ? ebb_arena_printf(scratch, "%s/adapter_model.safetensors", path) : path;
    EBB_GOT(tensors);
    if (folder)
        EBB_TRY(read_config(file, scratch));
    EBB_TRY(ebb_data_open(&file->data, tensors, NULL));
    const size_t length = strlen(path), end = strlen(ort_ending);
    file->is_ort = length > end && strcmp(path + length - end, ort_ending) == 0;
    if (file->is_ort)
        file->alpha = 1, file->has_alpha = true;
    else
        read_metadata(file);
    return NULL;
}

void ebb_lora_file_close(ebb_lora_file *file)
{
    ebb_data_close(file->data);
    json_decref(file->config);
}

const ebb_named *ebb_lora_file_find(const ebb_lora_file *file, const char *module,
                                    const char *tensor, ebb_arena *scratch)
{
    char *name = ebb_arena_printf(scratch, "%s%s.%s", prefix, module, tensor);
    const ebb_named *t = name != NULL ? ebb_data_find(file->data, name) : NULL;
    return t != NULL || name == NULL ? t : ebb_data_find(file->data, name + sizeof prefix - 1);
}

/* The name without what PEFT puts before it. */
static const char *plain_name(const char *name)
{
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : name;
}

const char *ebb_lora_file_module(const char *name, ebb_arena *scratch)
{
    const char *from = plain_name(name);
    const char *end = strstr(from, ".lora_");
    return end != NULL ? ebb_arena_printf(scratch, "%.*s", (int)(end - from), from) : NULL;
}

/* Its module, or a part of it, without the first letters. */
static bool has_layer(const ebb_lora_file *file, const ebb_lora_layer *layer, size_t from,
                      ebb_arena *scratch)
{
    bool has = ebb_lora_file_find(file, layer->whole.module + from, "lora_A.weight", scratch);
    for (int k = 0; k < layer->part_count && !has; k++)
        has = ebb_lora_file_find(file, layer->part[k].module + from, "lora_A.weight", scratch);
    return has;
}

/* How much of the first n letters both have, up to a dot. */
static size_t in_both(const char *a, const char *b, size_t n)
{
    while (n > 0 && (a[n - 1] != '.' || strncmp(a, b, n) != 0))
        n--;
    return n;
}

void ebb_lora_file_unwrap(const ebb_lora_file *file, ebb_lora_layer *list, size_t count,
                          ebb_arena *scratch)
{
    const char *first = count > 0 ? list[0].whole.module : "";
    size_t common = strlen(first), from = 0, found = 0;
    for (size_t i = 0; i < count; i++) {
        common = in_both(first, list[i].whole.module, common);
        for (int k = 0; k < list[i].part_count; k++)
            common = in_both(first, list[i].part[k].module, common);
    }
    while (found < count && !has_layer(file, &list[found], from, scratch))
        if (++found == count && from < common) {
            from += strcspn(first + from, ".") + 1;
            found = 0;
        }
    for (size_t i = 0; i < count && found < count; i++) {
        list[i].whole.module += from;
        for (int k = 0; k < list[i].part_count; k++)
            list[i].part[k].module += from;
    }
}

double ebb_lora_file_alpha(const ebb_lora_file *file, const char *module)
{
    const char *pattern;
    json_t *alpha;
    const size_t length = strlen(module);
    json_object_foreach(json_object_get(file->config, "alpha_pattern"), pattern, alpha) {
        const size_t n = strlen(pattern);
        const bool ends = n <= length && strcmp(module + length - n, pattern) == 0 &&
                          (n == length || module[length - n - 1] == '.');
        if (ends && json_is_number(alpha))
            return json_number_value(alpha);
    }
    return file->alpha;
}

ebb_status ebb_lora_file_take_wholes(const ebb_lora_file *file, ebb_graph *g)
{
    for (size_t i = 0; file->data != NULL && i < ebb_data_count(file->data); i++) {
        const ebb_named *t = ebb_data_at(file->data, i);
        const ebb_value v = ebb_value_find(g, plain_name(t->name));
        const ebb_type type = ebb_type_tensor((ebb_dtype)t->dtype, t->rank, t->dims);
        size_t bytes;
        if (strstr(t->name, ".lora_") != NULL)
            continue;
        if (v.i == 0 || (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) == 0 ||
            ebb_value_of(g, v)->type->dtype != type.dtype ||
            !ebb_type_same_shape(ebb_value_of(g, v)->type, &type) ||
            !ebb_type_bytes(&type, &bytes) || t->data == NULL)
            return ebb_error(
                EBB_REJECTED,
                "lora: %s has the weight '%s', and the model has none of that name, type "
                "and shape",
                file->path, t->name);
        void *copy = ebb_arena_alloc(&g->model->arena, bytes + 1);
        EBB_GOT(copy);
        EBB_TRY(ebb_value_point(g, v, memcpy(copy, t->data, bytes)));
    }
    return NULL;
}
