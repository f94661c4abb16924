/* write_tensor.c: a tensor into a message: as the file had it, moved to a data file, or with its
 * bytes inside.
 */
#include "onnx/file/writer.h"

#include <inttypes.h>

enum { DATA_ALIGNMENT = 4096 };

static bool unchanged(ebb_writer *w, const ebb_tensor *t, const Onnx__TensorProto *proto)
{
    if (t->data == NULL || t->data == proto->raw_data.data)
        return true;
    if (t->external)
        return !t->given;
    EBB_LOCAL_ARENA(scratch);
    ebb_mapping *none = NULL;
    const ebb_proto_files nowhere = {&none, NULL};
    ebb_tensor then;
    ebb_status status = ebb_proto_tensor(&then, scratch, &nowhere, proto, NULL);
    bool same = status == NULL && then.data != NULL && then.bytes == t->bytes &&
                (then.data == t->data || memcmp(then.data, t->data, t->bytes) == 0);
    if (status != NULL && ebb_status_code(status) != EBB_REJECTED)
        w->failed = true;
    ebb_mappings_free(none);
    return same;
}

static void set_external(ebb_writer *w, Onnx__TensorProto *t, const char *file, uint64_t offset,
                         size_t bytes)
{
    t->n_external_data = 3;
    t->external_data = EBB_WRITER_NEW(w, Onnx__StringStringEntryProto *, 3);
    if (t->external_data == NULL)
        return;
    char *at = ebb_arena_printf(&w->arena, "%" PRIu64, offset);
    char *length = ebb_arena_printf(&w->arena, "%zu", bytes);
    w->failed |= at == NULL || length == NULL;
    t->external_data[0] = ebb_writer_entry(w, "location", file);
    t->external_data[1] = ebb_writer_entry(w, "offset", at);
    t->external_data[2] = ebb_writer_entry(w, "length", length);
    w->failed |= t->external_data[2] == NULL;
    t->has_data_location = true;
    t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

static void drop_data(Onnx__TensorProto *t)
{
    t->n_float_data = t->n_int32_data = t->n_int64_data = t->n_double_data = t->n_uint64_data = 0;
    t->n_string_data = t->n_external_data = 0;
    t->has_raw_data = t->has_data_location = false;
    t->segment = NULL;
}

static void move_out(ebb_writer *w, Onnx__TensorProto *t, const ebb_tensor *tensor)
{
    uint64_t at = (w->data_end + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
    if (!ebb_arena_grow(&w->kept, &w->moved, w->moved_count, &w->moved_capacity,
                        sizeof *w->moved)) {
        w->failed = true;
        return;
    }
    w->moved[w->moved_count++] = (ebb_moved){tensor->data, tensor->bytes, at};
    w->data_end = at + tensor->bytes;
    drop_data(t);
    set_external(w, t, w->data_name, at, tensor->bytes);
}

static void set_bytes(ebb_writer *w, Onnx__TensorProto *t, const ebb_tensor *tensor)
{
    drop_data(t);
    if (tensor->data == NULL && tensor->bytes > 0) {
        set_external(w, t, w->absent_name, 0, tensor->bytes);
        return;
    }
    t->has_raw_data = true;
    t->raw_data.len = tensor->bytes;
    t->raw_data.data = ebb_writer_loan(tensor->data != NULL ? tensor->data : "");
}

/* Where there is an outside. */
static void put_outside(ebb_writer *w, Onnx__TensorProto *t, const ebb_tensor *tensor, bool movable)
{
    if (movable && w->data_name != NULL)
        move_out(w, t, tensor);
    else
        set_bytes(w, t, tensor);
}

Onnx__TensorProto *ebb_writer_tensor(ebb_writer *w, const ebb_tensor *tensor, bool movable)
{
    Onnx__TensorProto *t =
        EBB_WRITER_MESSAGE(w, Onnx__TensorProto, tensor_proto, tensor->origin, 0);
    if (t == NULL)
        return NULL;
    bool has_bytes = tensor->data != NULL && tensor->bytes > 0;
    if (tensor->origin == NULL || !unchanged(w, tensor, t)) {
        int rank = tensor->type.rank > 0 ? tensor->type.rank : 0;
        t->n_dims = (size_t)rank;
        t->dims = EBB_WRITER_NEW(w, int64_t, t->n_dims);
        for (int i = 0; t->dims != NULL && i < rank; i++)
            t->dims[i] = tensor->type.dims[i];
        t->has_data_type = true;
        t->data_type = tensor->type.dtype;
        if (tensor->external && has_bytes)
            put_outside(w, t, tensor, movable);
        else
            set_bytes(w, t, tensor);
    } else if (tensor->external && has_bytes && !w->keeps_external) {
        put_outside(w, t, tensor, movable);
        return t;
    }
    bool inside =
        t->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL || !t->has_data_location;
    if (movable && inside && has_bytes && w->data_name != NULL && w->external_above > 0 &&
        tensor->bytes >= w->external_above)
        move_out(w, t, tensor);
    return t;
}

/* A name for the data file that no reference which stays as it is already means. */
const char *ebb_writer_free_name(ebb_writer *w, const char *base)
{
    const ebb_graph *g = w->model->graph;
    const char *name = base;
    for (unsigned i = 1; name != NULL; i++) {
        bool taken = false;
        EBB_EACH_VALUE(g, v) {
            const ebb_tensor *t = ebb_value_of(g, v)->tensor;
            taken |=
                t != NULL && t->external && t->location != NULL && strcmp(t->location, name) == 0;
        }
        if (!taken)
            break;
        name = ebb_arena_printf(&w->kept, "%s.%u", base, i);
    }
    return name;
}

/* ---- sums of what lies in files of others ---- */

static bool has_given(const ebb_graph *g)
{
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_value_of(g, g->initializers[i])->tensor->given)
            return true;
    return false;
}

bool ebb_writer_sums(const ebb_writer *w)
{
    const ebb_model *m = w->model;
    return (m->graph->binding_count > 0 || m->ir_version >= EBB_IR_METADATA) &&
           (w->changed || has_given(m->graph));
}

const char *ebb_writer_sum(ebb_writer *w, const ebb_tensor *t)
{
    if (!t->external || t->given || t->data == NULL || t->origin == NULL || !w->keeps_external ||
        !(w->sums_external || t->summed))
        return NULL;
    const char *text = ebb_arena_printf(&w->arena, "%016" PRIx64, ebb_proto_external_sum(t));
    w->failed |= text == NULL;
    return text;
}
