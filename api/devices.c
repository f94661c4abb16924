/* devices.c: what can run a step on this machine, what cannot and why. */
#include "api/api.h"

#include "kernels/parallel.h"
#include "kernels/plugin.h"
#include "kernels/processor.h"

/* An error's sentence, and what would help. */
static void set_reason(json_t *row, ebb_status why)
{
    static const char hint[] = "\n  hint: ";
    const char *text = ebb_status_text(why), *help = strstr(text, hint);
    (void)json_object_set_new(row, "available", json_false());
    if (help != NULL)
        (void)json_object_set_new(row, "help", json_string(help + strlen(hint)));
    (void)json_object_set_new(row, "reason", json_stringn(text, strcspn(text, "\n")));
}

static json_t *cpu_row(void)
{
    int threads;
    const ebb_processor *processor;
    json_t *row = json_pack("{s:s, s:b}", "backend", "cpu", "available", 1);
    ebb_status why = ebb_processor_choose(&processor);
    if (row == NULL || why != NULL) {
        if (row != NULL)
            set_reason(row, why);
        return row;
    }
    (void)ebb_threads_read(&threads, 0);
    (void)json_object_set_new(row, "name", json_string("the processor"));
    (void)json_object_set_new(row, "kernels", json_string(processor->name));
    (void)json_object_set_new(row, "threads", json_integer(threads));
    const ebb_kernel *product = ebb_backend_find(processor->cpu[0], EBB_OP_MATMUL);
    bool has_onednn = product != NULL && strncmp(product->name, "dnnl.", 5) == 0;
    (void)json_object_set_new(row, "libraries",
                              json_string(has_onednn ? "oneDNN, plain" : "plain"));
    return row;
}

static json_t *plugin_row(const char *name, const ebb_plugin *plugin, ebb_status why)
{
    json_t *row = json_pack("{s:s, s:b}", "backend", name, "available", 1);
    char text[1600] = "";
    ebb_device_facts f;
    if (row == NULL || why != NULL) {
        if (row != NULL)
            set_reason(row, why);
        return row;
    }
    plugin->libraries(text, sizeof text);
    (void)json_object_set_new(row, "libraries", json_string(text));
    why = plugin->backend->device->facts(NULL, &f);
    if (why != NULL)
        set_reason(row, why);
    (void)json_object_set_new(row, "driver", json_integer(f.driver));
    (void)json_object_set_new(row, "runtime", json_integer(f.runtime));
    if (why != NULL)
        return row;
    (void)json_object_set_new(row, "name", json_string(f.name));
    (void)json_object_set_new(row, "version", json_integer(f.version));
    (void)json_object_set_new(row, "total_bytes", json_integer((json_int_t)f.total_bytes));
    (void)json_object_set_new(row, "free_bytes", json_integer((json_int_t)f.free_bytes));
    return row;
}

EBB_API ebb_status ebb_devices_json(char **json)
{
    EBB_NEED(json);
    json_t *rows = json_pack("[o]", cpu_row()), *described = json_array();
    const char *name;
    for (size_t i = 0; (name = ebb_plugin_name(i)) != NULL; i++) {
        const ebb_plugin *plugin;
        ebb_status why = ebb_plugin_open(&plugin, i);
        for (size_t k = 0; plugin != NULL && plugin->described[k] != NULL; k++)
            (void)json_array_append_new(described, json_string(plugin->described[k]));
        (void)json_array_append_new(rows, plugin_row(name, plugin, why));
    }
    return ebb_json_text(json, json_pack("{s:s, s:o, s:o}", "schema", "ebb.devices/1", "devices",
                                         rows, "described", described));
}
