/* weights.c: whether one initializer is a weight, where its file does not say.
 *
 * The last two are completed by what is seen of a tensor itself, as folding takes marks and names from
 * most weights of an export: the slots that it goes into, its shape, its values (values.h), what the
 * exporter notes at the nodes that read it (noted.h), and, beside those, its name. A tensor is
 *
 *   sure       marked, and no table of sines; or in the slot of a weight, unless its values are those of a constant; or an
 *              operand of a sum or a product as biases, scales and tables of positions are
 *   doubtful   made of weights before the run (looked up, repeated, computed): training it would not
 *              be training them
 *   none       all else: masks, steps, sines, sizes, statistics, lone numbers
 */
#include "passes/parameters/weights.h"

#include "passes/common.h"
#include "passes/parameters/noted.h"
#include "passes/parameters/readers.h"
#include "passes/parameters/slots.h"
#include "passes/parameters/values.h"

/* A product of parameters takes the place of neither, unlike one that was scaled or normalised. */
static bool is_product_of_weights(const ebb_judge *j, ebb_value v, const ebb_readers *r)
{
    return r->fold >= EBB_FOLD_OF_PARAMETERS && ebb_noted_is_product(j->g, v);
}

static const char in_their_place[] =
    "it was computed from weights, as weight norm does, and is trained in their place";
static const char computed[] = "it was computed from weights before the run";
static const char resized[] =
    "it was interpolated before the run, as places are for another size of image";
static const char beside_another[] =
    "it was computed, before the run, from a weight that is trained as well";
static const char of_module[] =
    "it was made, before the run, of a parameter of its module that the file no longer has";
static const char scaled_by_zero[] =
    "it was scaled by 0 before the run, as by a fresh batch norm, and nothing is left of it";

static const char does_nothing[] =
    "it does nothing as it is, as what was folded of a weight that was never trained";

static const char all_zeros[] =
    "its zeros are biases that were never trained, or stand for one of these and for what is held "
    "fixed beside it";

static const char part_of_table[] = "the rows of a table that were looked up before the run; the "
                                    "file has no others, so that they are "
                                    "trained and the rest of the table is not";

static ebb_weight no_weight(void)
{
    return (ebb_weight){0};
}

static ebb_weight doubtful(const char *why)
{
    return (ebb_weight){.kind = EBB_DOUBTFUL_WEIGHT, .why = why};
}

static ebb_weight made_before(const char *why)
{
    return (ebb_weight){.kind = EBB_DOUBTFUL_WEIGHT, .made = true, .why = why};
}

static ebb_weight untold(const char *why)
{
    return (ebb_weight){.kind = EBB_DOUBTFUL_WEIGHT, .untold = true, .why = why};
}

static ebb_weight sure(const char *instead)
{
    return (ebb_weight){.kind = EBB_SURE_WEIGHT, .lost = true, .why = instead};
}

static const char not_told[] =
    "its values follow a rule, and TorchScript files do not tell a parameter from a buffer";
static const char bare_matrix[] =
    "neither its name nor its place tells a parameter from a buffer, as of random features";
static const char frozen_norm[] =
    "it stands beside running statistics that no batch norm reads, as a frozen one's buffers do";
static const char scale_and_shift[] =
    "a scale and a shift without names, as a frozen batch norm has them, which holds no parameters";
static const char maybe_tied[] =
    "two layers had equal ones, and the file does not tell whether they are tied";
static const char subtracted[] = "it is subtracted or divided by, as means and deviations are";
static const char taken[] =
    "taken for parameters, as TorchScript files do not tell: --freeze buffers, or export with "
    "dynamo=True, optimize=False";

static bool is_constant_by_look(ebb_look look)
{
    return look == EBB_LOOK_MASK || look == EBB_LOOK_WHOLE || look == EBB_LOOK_COMPUTED;
}

/* Places are looked up in it, or it is added whole: one that was trained follows no rule. */
static bool is_fixed_table(const ebb_judge *j, ebb_value v, const ebb_readers *r)
{
    return !r->other && (r->weight || r->added) &&
           ebb_is_table_of_sines(ebb_value_of(j->g, v)->tensor);
}

static const char sines[] = "its values are sines of the place, a table that authors hold fixed";

static bool is_zero_or_one(const ebb_tensor *t)
{
    double x = ebb_tensor_double(t, 0);
    return x == 0 || x == 1;
}

/* Zeros and ones, and both of them: a mask, of however few. */
static bool is_binary(const ebb_tensor *t)
{
    int64_t elements, ones = 0;
    if (t->data == NULL || !ebb_type_elements(&t->type, &elements))
        return false;
    for (int64_t i = 0; i < elements; i++) {
        const double x = ebb_tensor_double(t, i);
        if (x != 0 && x != 1)
            return false;
        ones += x == 1;
    }
    return ones > 0 && ones < elements;
}

/* A product with it would do nothing, but for what training makes of it. */
static bool is_identity(const ebb_tensor *t)
{
    const int64_t n = t->type.rank == 2 ? t->type.dims[0] : 0;
    bool is = n > 1 && t->type.dims[1] == n && t->data != NULL;
    for (int64_t i = 0; is && i < n * n; i++)
        is = ebb_tensor_double(t, i) == (i % (n + 1) == 0);
    return is;
}

/* Zeros that a cell begins with: they stand where the states of later steps do, before a weight or where an
 * operator takes neither weights nor terms. */
static bool is_first_state(const ebb_judge *j, ebb_value v, const ebb_readers *r, ebb_look look)
{
    return look == EBB_LOOK_EQUAL && ebb_tensor_double(ebb_value_of(j->g, v)->tensor, 0) == 0 &&
           !r->matrix && (r->state || (!r->weight && !r->arithmetic && !r->alone));
}

/* A layer's bias keeps its name, unless it was cut out of several or put together, as with zeros where
 * keys have none. These are seen among numbers, and not among zeros. */
static bool is_joined(const ebb_judge *j, ebb_value v, const ebb_readers *r, ebb_look look)
{
    const ebb_value_info *info = ebb_value_of(j->g, v);
    return r->bias && ebb_is_folded_state(j->g, v) && info->type->rank == 1 &&
           (look == EBB_LOOK_PADDED ||
            (look == EBB_LOOK_EQUAL && ebb_tensor_double(info->tensor, 0) == 0));
}

static ebb_weight judge_joined(ebb_look look)
{
    return made_before(look == EBB_LOOK_PADDED ? ebb_look_words(look) : all_zeros);
}

/* Of a tensor without name and mark, in the slot of a weight. */
static ebb_weight judge_slot(const ebb_judge *j, ebb_value v, const ebb_readers *r, ebb_look look)
{
    enum { ENOUGH = 64 }; // elements, to say something against a slot
    const ebb_value_info *info = ebb_value_of(j->g, v);
    int64_t elements;
    if (is_constant_by_look(look) && ebb_type_elements(info->type, &elements) &&
        elements >= ENOUGH && !(r->product && is_identity(info->tensor)))
        return no_weight();
    if (look == EBB_LOOK_EQUAL && r->norm && is_zero_or_one(info->tensor) &&
        !ebb_is_folded_state(j->g, v))
        return no_weight(); // what a norm without scale and bias is given
    if (info->type->rank == 0)
        return no_weight(); // what a layer without bias is filled with
    if (is_first_state(j, v, r, look))
        return no_weight();
    bool folded = r->noted && !r->parameter;
    if (look == EBB_LOOK_EQUAL && (r->normed || folded) && info->type->rank > 1 &&
        ebb_tensor_double(info->tensor, 0) == 0)
        return made_before(scaled_by_zero);
    if (look == EBB_LOOK_EXPANDED || (look == EBB_LOOK_LOOKED_UP && r->norm))
        return doubtful(ebb_look_words(look));
    if (folded && r->rule && !r->normed &&
        (!r->product || ebb_name_is_of_arithmetic(ebb_value_name(j->g, v)) ||
         ebb_noted_is_computed(j->g, v)))
        return doubtful(of_module);
    if ((folded && r->product && info->type->rank > 3) || is_product_of_weights(j, v, r))
        return doubtful(computed);
    const bool state = ebb_is_folded_state(j->g, v);
    if (state && !r->whole)
        return sure(taken);
    return sure((folded && !r->product) || (state && r->made) ? in_their_place : NULL);
}

/* Of equal numbers: nobody writes down a sum with a table of zeros, or a product with ones or a vector of
 * zeros. A table of zeros may be a mask; [1, n] that is added, a bias that is held fixed. */
static ebb_weight judge_equal(const ebb_judge *j, ebb_value v, const ebb_readers *r)
{
    const ebb_value_info *info = ebb_value_of(j->g, v);
    const double x = ebb_tensor_double(info->tensor, 0);
    const bool table = ebb_long_axes(info->type) > 1;
    const bool multiplies = r->arithmetic && !r->added && !r->less; // the input, too
    const bool does_nothing_yet = (r->added && x == 0 && (table || info->type->rank == 1)) ||
                                  (multiplies && x == 1) ||
                                  (r->scales && (x == 1 || (x == 0 && !table)));
    if (ebb_is_folded_state(j->g, v) && does_nothing_yet)
        return made_before(does_nothing);
    return no_weight();
}

/* Whether another of its shape is there by its name, which it may have been computed of. */
static bool is_of_twin(const ebb_judge *j, ebb_value v, bool alike)
{
    return j->unmarked.g == j->g && ebb_is_folded_state(j->g, v) &&
           ebb_unmarked_keeps_twin(&j->unmarked, v, alike);
}

/* Of such a one that is added or multiplied. */
static ebb_weight judge_operand(const ebb_judge *j, ebb_value v, const ebb_readers *r,
                                ebb_look look)
{
    const ebb_value_info *info = ebb_value_of(j->g, v);
    const char *name = ebb_value_name(j->g, v);
    const bool one_axis = ebb_long_axes(info->type) <= 1;
    int64_t elements;
    if (!ebb_type_elements(info->type, &elements) || is_constant_by_look(look) ||
        (r->buffer && !r->parameter))
        return no_weight();
    if (elements < 2) // but for the temperature of a softmax
        return j->marked && ebb_name_is_after(name, "exp") ? doubtful(computed) : no_weight();
    if (look == EBB_LOOK_EQUAL && one_axis && j->marked && !r->parameter &&
        ebb_name_is_of_arithmetic(name))
        return doubtful(computed);
    if (look == EBB_LOOK_EQUAL && !one_axis)
        return r->owner && !ebb_name_is_after(name, "zeros ones") ? doubtful(of_module)
                                                                  : judge_equal(j, v, r);
    const bool of_weights = r->fold >= EBB_FOLD_OF_PARAMETERS && !ebb_name_is_of_arithmetic(name);
    if (look == EBB_LOOK_EQUAL && of_weights && r->scales && is_zero_or_one(info->tensor))
        return sure(in_their_place); // 1 + w, where w is still 0
    if (is_of_twin(j, v, true))
        return made_before(computed);
    if (look == EBB_LOOK_EQUAL) // a scale for each channel; a number for all would be one number
        return r->parameter || r->owner || r->behind || (r->scales && !is_zero_or_one(info->tensor))
                   ? sure(ebb_is_folded_state(j->g, v) ? taken : NULL)
                   : judge_equal(j, v, r);
    // biases are drawn above 0 here and there; what came of an exponential is a scale
    const bool bias =
        look == EBB_LOOK_ONE_SIGN && r->added && !r->scales && ebb_is_folded_state(j->g, v);
    if (look != EBB_LOOK_DRAWN && !bias)
        return (ebb_weight){.kind = EBB_DOUBTFUL_WEIGHT,
                            .made = ebb_is_folded_state(j->g, v),
                            .why = ebb_look_words(look)};
    if (one_axis && r->parameter)
        return sure(NULL);
    if (j->marked && (ebb_name_is_of_arithmetic(name) || (r->parameter && r->noted)))
        return doubtful(computed);
    if (r->layer && !one_axis)
        return doubtful("a layer was computed before the run, and this is what came of it");
    if (r->less)
        return ebb_is_folded_state(j->g, v) ? untold(subtracted) : doubtful(subtracted);
    if (ebb_is_folded_state(j->g, v) && is_binary(info->tensor))
        return untold(not_told);
    return sure(ebb_is_folded_state(j->g, v) ? taken : NULL);
}

/* Of one that a gate, an exponential or the standardisation of a weight is computed of: of a constant that
 * would have been done before. */
static ebb_weight judge_alone(const ebb_judge *j, ebb_value v, ebb_look look)
{
    const ebb_value_info *info = ebb_value_of(j->g, v);
    int64_t elements;
    bool several = ebb_type_elements(info->type, &elements) && elements > 1;
    if (several && is_of_twin(j, v, false))
        return made_before(computed);
    return several && !is_constant_by_look(look) ? sure(NULL) : no_weight();
}

/* Of one that goes where neither is expected: that it is left out is said where it is no constant. */
static ebb_weight judge_other(const ebb_judge *j, ebb_value v, const ebb_readers *r, ebb_look look,
                              int64_t different)
{
    enum { ENOUGH = 64 };
    bool drawn = look == EBB_LOOK_DRAWN || look == EBB_LOOK_ONE_SIGN;
    bool read = ebb_value_is_read(j->g, v);
    static const char unknown[] = "no operator that reads it tells what it is";
    if (read && r->resized && look == EBB_LOOK_EQUAL && ebb_is_folded_state(j->g, v))
        return made_before(does_nothing);
    if (!read || !drawn)
        return no_weight();
    if (ebb_is_folded_state(j->g, v)) // a constant would lie in a node
        return different > 1 ? untold(unknown) : no_weight();
    return different >= ENOUGH ? doubtful(unknown) : no_weight();
}

/* Numbers of calibration, and those that make an image's mean 0. */
static bool is_fixed_by_use(const ebb_graph *g, ebb_value v, const ebb_readers *r)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    int64_t elements;
    bool scale = false; // a bias may be scaled by the product of two of them
    for (size_t i = 0; !scale && i < info->use_count; i++)
        scale = ebb_use_of(g, info->uses[i]) == EBB_SLOT_SCALE;
    return scale ||
           (r->input && !r->weight && ebb_type_elements(info->type, &elements) && elements <= 4);
}

/* Of a tensor with a name, which was one of its module's state. */
static ebb_weight judge_state(const ebb_judge *j, ebb_value v, const ebb_readers *r, ebb_look look)
{
    const ebb_value_info *info = ebb_value_of(j->g, v);
    const ebb_unmarked told =
        j->unmarked.g == NULL ? EBB_UNMARKED_PARAMETER : ebb_unmarked_of(&j->unmarked, v);
    if (told == EBB_UNMARKED_PARAMETER)
        return (ebb_weight){.kind = EBB_SURE_WEIGHT};
    if (told == EBB_UNMARKED_BUFFER)
        return no_weight();
    if (told == EBB_UNMARKED_FROZEN)
        return doubtful(frozen_norm);
    // values of a filter, a transform, a grid or a mask are mostly a buffer's
    const bool follows_rule =
        look == EBB_LOOK_EXPANDED || look == EBB_LOOK_LOOKED_UP ? r->weight || !r->alone
        : look == EBB_LOOK_EQUAL ? r->weight && !is_zero_or_one(info->tensor)
                                 : is_constant_by_look(look) || is_binary(info->tensor);
    if (follows_rule || r->code || (r->matrix && look != EBB_LOOK_EQUAL))
        return untold(follows_rule ? not_told : bare_matrix);
    return (ebb_weight){.kind = EBB_SURE_WEIGHT, .why = taken};
}

/* Of a tensor with a name: all that its author had as state, but what its values tell otherwise. A
 * lone number is a constant where the file does not tell. */
static ebb_weight judge_name(const ebb_judge *j, ebb_value v, const ebb_readers *r, ebb_look look)
{
    const ebb_value_info *info = ebb_value_of(j->g, v);
    int64_t elements;
    enum { ENOUGH = 32 }; // elements, to say something against a name
    bool buffer = ebb_name_is_of_buffer(ebb_last_part(ebb_value_name(j->g, v)));
    bool known = ebb_type_elements(info->type, &elements);
    if (ebb_name_is_of_statistic(ebb_last_part(ebb_value_name(j->g, v))) ||
        ebb_is_of_spectral_norm(j->g, ebb_value_name(j->g, v)))
        return no_weight();
    if (buffer && (look == EBB_LOOK_EQUAL || r->input) && !r->weight)
        return no_weight();
    if (is_constant_by_look(look) && (buffer || (!r->weight && known && elements >= ENOUGH)))
        return no_weight();
    if (!j->g->model->torchscript && is_first_state(j, v, r, look))
        return no_weight();
    if (is_fixed_table(j, v, r))
        return doubtful(sines);
    bool several = known && (elements > 1 || (elements == 1 && ebb_is_parameter(j->g, v)));
    return r->weight || (ebb_value_is_read(j->g, v) && several) ? judge_state(j, v, r, look)
                                                                : no_weight();
}

ebb_status ebb_weight_judge(ebb_judge *j, ebb_value v, ebb_weight *weight)
{
    const ebb_graph *g = j->g;
    ebb_noted_kind kind = ebb_noted_kind_of(g, v);
    ebb_look look;
    int64_t different, elements;
    *weight = no_weight();
    if (ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_COMPUTED) != NULL) {
        *weight = made_before(computed);
        return NULL;
    }
    if (kind == EBB_NOTED_OTHER)
        return NULL;
    if (ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_MAYBE_TIED) != NULL) {
        *weight = untold(maybe_tied);
        return NULL;
    }
    if (kind == EBB_NOTED_PARAMETER && j->marked) {
        *weight = (ebb_weight){.kind = EBB_SURE_WEIGHT};
        if (ebb_is_table_of_sines(ebb_value_of(g, v)->tensor)) {
            ebb_readers r = ebb_readers_of(j, v);
            *weight = is_fixed_table(j, v, &r) ? doubtful(sines) : *weight;
        }
        return NULL;
    }
    ebb_readers r = ebb_readers_of(j, v);
    r.fold = ebb_noted_fold_of(&j->losses, g, v);
    bool named = !j->marked && !ebb_name_is_anonymous(ebb_value_name(g, v));
    // an exporter keeps one of equal tensors: it may stand for a parameter as well
    if (is_fixed_by_use(g, v, &r) || (r.fold == EBB_FOLD_OF_CONSTANTS && !r.gone))
        return NULL;
    EBB_TRY(ebb_values_look(&look, &different, ebb_value_of(g, v)->tensor, j->scratch));
    const bool scale = r.scale && ebb_is_folded_state(g, v), joined = is_joined(j, v, &r, look);
    *weight = named          ? judge_name(j, v, &r, look)
              : scale        ? untold(scale_and_shift)
              : joined       ? judge_joined(look)
              : r.weight     ? judge_slot(j, v, &r, look)
              : r.alone      ? judge_alone(j, v, look)
              : r.arithmetic ? judge_operand(j, v, &r, look)
                             : judge_other(j, v, &r, look, different);
    const bool of_weights = r.fold >= EBB_FOLD_OF_PARAMETERS;
    if (of_weights && weight->kind == EBB_SURE_WEIGHT && ebb_noted_is_resized(g, v))
        *weight = doubtful(resized);
    if (of_weights && weight->kind == EBB_SURE_WEIGHT && look == EBB_LOOK_EQUAL &&
        ebb_noted_is_expanded(g, v))
        *weight = doubtful(ebb_look_words(EBB_LOOK_EXPANDED)); // of how many is not to be seen
    if (of_weights && weight->kind == EBB_SURE_WEIGHT && look != EBB_LOOK_EQUAL &&
        ebb_noted_is_beside(&j->losses, g, v))
        *weight = doubtful(beside_another);
    const bool made = of_weights && weight->kind == EBB_SURE_WEIGHT;
    if (made && !r.weight && ebb_noted_is_computed(g, v))
        *weight = doubtful(computed);
    else if (made && weight->why == NULL && (ebb_noted_is_computed(g, v) || ebb_noted_is_sum(g, v)))
        weight->why = in_their_place;
    const bool lone = ebb_type_elements(ebb_value_of(g, v)->type, &elements) && elements == 1 &&
                      ebb_is_folded_state(j->g, v);
    if ((of_weights || lone) && weight->kind == EBB_NO_WEIGHT && ebb_value_is_read(g, v))
        *weight = doubtful(computed);
    if (r.fold == EBB_FOLD_OF_SEVERAL && weight->kind == EBB_SURE_WEIGHT && !r.weight)
        *weight = doubtful(computed); // a sum of tokens and places, or layers of them
    // angles of places, of however few, which their author holds as a parameter that is not trained
    const bool fixed = (weight->why == computed && of_weights &&
                        ebb_is_table_of_sines(ebb_value_of(g, v)->tensor)) ||
                       (weight->kind == EBB_SURE_WEIGHT && !named && is_fixed_table(j, v, &r));
    if (fixed)
        *weight = doubtful(sines);
    const bool part = of_weights && ebb_name_is_of_part(ebb_value_name(g, v));
    const bool table = ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_LOOKED_UP) != NULL;
    if (weight->kind == EBB_SURE_WEIGHT && weight->why == NULL && (part || table))
        weight->why = part_of_table;
    weight->elements = different;
    weight->made |=
        weight->kind == EBB_DOUBTFUL_WEIGHT && !fixed && (r.owner || r.layer || of_weights || lone);
    return NULL;
}

typedef struct candidate { /* a sure weight */
    ebb_extremes extremes;
    ebb_value v;
    bool folded, made;
} candidate;

ebb_status ebb_weights_judge_beside(const ebb_judge *j, ebb_weight *list)
{
    enum { MOST = 4096 }; // of initializers; the search is quadratic
    const ebb_graph *g = j->g;
    const size_t most = g->initializer_count < MOST ? g->initializer_count : MOST;
    size_t count = 0;
    if (!g->model->torchscript)
        return NULL;
    candidate *all = EBB_NEW(j->scratch, candidate, most + 1);
    EBB_GOT(all);
    for (size_t i = 0; i < most; i++) {
        const ebb_value v = g->initializers[i];
        if (list[v.i].kind == EBB_SURE_WEIGHT)
            all[count++] = (candidate){.extremes = ebb_extremes_of(ebb_value_of(g, v)->tensor),
                                       .v = v,
                                       .folded = ebb_is_folded_state(g, v)};
    }
    for (candidate *own = all; own < all + count; own++) {
        for (candidate *of = all; own->folded && !own->made && of < all + count; of++)
            own->made = of != own && (of < own || !of->folded) && !of->made &&
                        (ebb_is_affine(&of->extremes, &own->extremes) ||
                         ebb_is_begun(of->extremes.tensor, own->extremes.tensor));
        if (own->made)
            list[own->v.i] = made_before(beside_another);
    }
    return NULL;
}
