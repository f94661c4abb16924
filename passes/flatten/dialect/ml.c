/* ml: operators of ai.onnx.ml that are arithmetic, as converters of scikit-learn write them.
 *
 *     y = ai.onnx.ml.Scaler <offset, scale> (x)      ──> y = Mul(Sub(x, offset), scale)
 *     label, z = ai.onnx.ml.LinearClassifier <coefficients, intercepts, classlabels_ints> (x)
 *                ──> scores = Gemm(x, coefficients, intercepts),  z = Softmax(scores),
 *                    label = Gather(classlabels, ArgMax(scores))
 *
 * Coefficients become initializers of the graph, which can be trained. What deals in strings and
 * maps, and trees and support vectors, stays what it is: none of it has a gradient.
 */
#include "passes/flatten/dialect/dialect.h"

/* ---- what rules share ---- */

/* The input in float32, as all of these compute. */
static ebb_value floats(ebb_build *b, const ebb_foreign *f)
{
    return ebb_emit_cast(b, f->x[0], EBB_F32);
}

/* A list of floats as [rows, columns] or, with no rows, [columns]; none: absent, or of another size. */
static ebb_value weights(ebb_build *b, ebb_foreign *f, const char *attr, const char *name,
                         int64_t rows, int64_t columns)
{
    const ebb_attr *list = ebb_attr_find(&f->attrs, attr);
    const int64_t dims[2] = {rows > 0 ? rows : columns, columns}, lines = rows > 0 ? rows : 1;
    ebb_value v = EBB_NO_VALUE;
    if (b->status != NULL || list == NULL || list->floats == NULL || list->count % lines != 0 ||
        list->count / lines != columns)
        return v;
    const ebb_type type = ebb_type_tensor(EBB_F32, rows > 0 ? 2 : 1, dims);
    char *full = ebb_arena_printf(f->scratch, "%s.%s", b->name, name);
    if (ebb_build_got(b, full))
        ebb_build_fail(
            b, ebb_graph_add_initializer(b->g, &v, full, &type, list->floats, EBB_ROLE_NONE));
    return v;
}

/* The numbers of an attribute as a constant that is not trained: one, or one for each column. */
static ebb_value numbers(ebb_build *b, ebb_foreign *f, const char *attr)
{
    const ebb_attr *list = ebb_attr_find(&f->attrs, attr);
    const int64_t dims[1] = {list != NULL ? list->count : 0};
    if (list == NULL || list->floats == NULL || list->count == 0)
        return EBB_NO_VALUE;
    const ebb_type type = ebb_type_tensor(EBB_F32, 1, dims);
    return ebb_const_tensor(b, &type, list->floats);
}

/* What makes scores of a linear model's sums. */
static ebb_value transformed(ebb_build *b, ebb_foreign *f, ebb_value scores)
{
    const char *name = ebb_attr_string(&f->attrs, "post_transform", "NONE");
    if (strcmp(name, "SOFTMAX") == 0) {
        ebb_with_int(b, "axis", -1);
        return ebb_emit(b, EBB_OP_SOFTMAX, scores);
    }
    if (strcmp(name, "LOGISTIC") == 0)
        return ebb_emit(b, EBB_OP_SIGMOID, scores);
    if (strcmp(name, "NONE") != 0)
        f->declines = "its post_transform is none of NONE, SOFTMAX and LOGISTIC";
    return scores;
}

/* x [N, C] coefficients^T [C, count] + intercepts [count] */
static ebb_value linear(ebb_build *b, ebb_foreign *f, int64_t count)
{
    ebb_type x;
    if (!ebb_foreign_ranked(b, f, 0, &x) ||
        ebb_foreign_declines(f, x.rank != 2 || x.dims[1] <= 0 || count <= 0,
                             "its input is no matrix with a known number of columns"))
        return EBB_NO_VALUE;
    ebb_value w = weights(b, f, "coefficients", "coefficients", count, x.dims[1]);
    ebb_value bias = weights(b, f, "intercepts", "intercepts", 0, count);
    if (b->status == NULL && w.i == 0)
        f->declines = "its coefficients are not one for each of its outputs and columns";
    if (b->status != NULL || f->declines != NULL)
        return EBB_NO_VALUE;
    ebb_value rows = floats(b, f);
    ebb_with_int(b, "transB", 1);
    return ebb_emit(b, EBB_OP_GEMM, rows, w, bias);
}

/* ---- linear models ---- */

/* LinearRegressor(X) {coefficients, intercepts, targets, post_transform} -> Y [N, targets] */
void ebb_dialect_linear_regressor(ebb_build *b, ebb_foreign *f)
{
    ebb_value scores = linear(b, f, ebb_attr_int(&f->attrs, "targets", 1));
    if (f->declines == NULL)
        f->y[0] = transformed(b, f, scores);
}

/* LinearClassifier(X) {coefficients, intercepts, classlabels_ints, post_transform} -> label [N], Z */
void ebb_dialect_linear_classifier(ebb_build *b, ebb_foreign *f)
{
    uint32_t count;
    const int64_t *labels = ebb_attr_ints(&f->attrs, "classlabels_ints", &count);
    const ebb_attr *names = ebb_attr_find(&f->attrs, "classlabels_strings");
    if (ebb_foreign_declines(f, labels == NULL && (names == NULL || f->wants[0]),
                             "its labels are strings"))
        return;
    ebb_value scores = linear(b, f, labels != NULL ? (int64_t)count : (int64_t)names->count);
    if (f->declines != NULL)
        return;
    if (f->wants[0]) {
        ebb_with_int(b, "axis", 1);
        ebb_with_int(b, "keepdims", 0);
        ebb_value most = ebb_emit(b, EBB_OP_ARG_MAX, scores);
        f->y[0] = ebb_emit(b, EBB_OP_GATHER, ebb_const_ints(b, labels, count), most);
    }
    f->y[1] = transformed(b, f, scores);
}

/* ---- what stands before and behind them ---- */

/* Scaler(X) {offset, scale} -> (X - offset) scale */
void ebb_dialect_scaler(ebb_build *b, ebb_foreign *f)
{
    ebb_value x = floats(b, f), offset = numbers(b, f, "offset");
    ebb_value scale = numbers(b, f, "scale");
    if (offset.i != 0)
        x = ebb_emit(b, EBB_OP_SUB, x, offset);
    f->y[0] = scale.i != 0 ? ebb_emit(b, EBB_OP_MUL, x, scale) : ebb_emit(b, EBB_OP_IDENTITY, x);
}

/* Normalizer(X) {norm = MAX | L1 | L2} -> the rows of X by their norm, those of norm 0 as they are */
void ebb_dialect_normalizer(ebb_build *b, ebb_foreign *f)
{
    const char *norm = ebb_attr_string(&f->attrs, "norm", "MAX");
    const int64_t last[1] = {-1};
    const ebb_op op = strcmp(norm, "L1") == 0   ? EBB_OP_REDUCE_L1
                      : strcmp(norm, "L2") == 0 ? EBB_OP_REDUCE_L2
                                                : EBB_OP_REDUCE_MAX;
    ebb_value x = floats(b, f);
    ebb_value size = ebb_emit_reduce(b, op, x, last, 1, true);
    ebb_value none = ebb_emit(b, EBB_OP_EQUAL, size, ebb_const_scalar(b, EBB_F32, 0));
    ebb_value by = ebb_emit(b, EBB_OP_WHERE, none, ebb_const_scalar(b, EBB_F32, 1), size);
    f->y[0] = ebb_emit(b, EBB_OP_DIV, x, by);
}

/* Binarizer(X) {threshold} -> 1 where X is above it, else 0 */
void ebb_dialect_binarizer(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    if (!ebb_foreign_ranked(b, f, 0, &x))
        return;
    ebb_value limit = ebb_const_like(b, f->x[0], ebb_attr_float(&f->attrs, "threshold", 0));
    ebb_value above = ebb_emit(b, EBB_OP_GREATER, f->x[0], limit);
    f->y[0] = ebb_emit_cast(b, above, (ebb_dtype)x.dtype);
}

/* Imputer(X) {imputed_value_floats, replaced_value_float} -> X, other numbers where it has that one */
void ebb_dialect_imputer(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    const double replaced = ebb_attr_float(&f->attrs, "replaced_value_float", 0);
    if (!ebb_foreign_ranked(b, f, 0, &x))
        return;
    ebb_value by = numbers(b, f, "imputed_value_floats");
    if (ebb_foreign_declines(f, b->status == NULL && (by.i == 0 || x.dtype != EBB_F32),
                             "it does not replace float32 by float32"))
        return;
    ebb_value there = replaced != replaced ? ebb_emit(b, EBB_OP_IS_NAN, f->x[0])
                                           : ebb_emit(b, EBB_OP_EQUAL, f->x[0],
                                                      ebb_const_scalar(b, EBB_F32, replaced));
    f->y[0] = ebb_emit(b, EBB_OP_WHERE, there, by, f->x[0]);
}

/* ArrayFeatureExtractor(X [..., C], places) -> X[..., places]; of a vector it is a row */
void ebb_dialect_array_feature_extractor(ebb_build *b, ebb_foreign *f)
{
    ebb_type x;
    const int64_t all[1] = {-1}, row[2] = {1, -1};
    if (!ebb_foreign_ranked(b, f, 0, &x))
        return;
    ebb_value places = ebb_emit(b, EBB_OP_RESHAPE, f->x[1], ebb_const_ints(b, all, 1));
    ebb_with_int(b, "axis", -1);
    ebb_value taken = ebb_emit(b, EBB_OP_GATHER, f->x[0], places);
    f->y[0] = x.rank != 1 ? taken : ebb_emit(b, EBB_OP_RESHAPE, taken, ebb_const_ints(b, row, 2));
}
