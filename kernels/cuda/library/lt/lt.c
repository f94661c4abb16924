/* lt.c: lt.h by libcublasLt, whose functions are looked up by name. */
#include "kernels/cuda/library/lt.h"

#include "kernels/cuda/library/find_library.h"
#include "onnx/words/arena.h"

#include <cublasLt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the library ---- */

/* The functions that are used, each under its name without the prefix. */
// clang-format off
#define FUNCTIONS(X)                                                                           \
    X(Create) X(Destroy) X(GetVersion) X(GetStatusString) X(MatmulDescCreate) X(MatmulDescDestroy)           \
    X(MatmulDescSetAttribute) X(MatrixLayoutCreate) X(MatrixLayoutDestroy)                     \
    X(MatrixLayoutSetAttribute) X(MatmulPreferenceCreate) X(MatmulPreferenceDestroy)           \
    X(MatmulPreferenceSetAttribute) X(MatmulAlgoGetHeuristic) X(Matmul)
// clang-format on

#define PLACE(name) __typeof__(&cublasLt##name) name;
static struct {
    FUNCTIONS(PLACE)
} lt;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char trouble[512];

static void look_up(void *library, const char *name, void *place)
{
    if (!ebb_library_symbol(library, name, place) && trouble[0] == 0)
        (void)snprintf(trouble, sizeof trouble, "the cuBLASLt that was opened has no %s", name);
}

static void open_library(void)
{
    char why[400] = "";
    void *library = ebb_library_find("EBB_CUBLASLT", "libcublasLt.so.13", why, sizeof why);
    if (library == NULL) {
        (void)snprintf(trouble, sizeof trouble, "cuBLASLt 13 cannot be opened: %s", why);
        return;
    }
#define LOOK_UP(name) look_up(library, "cublasLt" #name, &lt.name);
    FUNCTIONS(LOOK_UP)
    const int64_t v = trouble[0] == 0 ? (int64_t)lt.GetVersion() : 0;
    if (trouble[0] == 0 && v / 10000 != 13) // structs and enums of the header are of one version
        (void)snprintf(trouble, sizeof trouble,
                       "the cuBLASLt that was opened is version %d.%d, and 13 is needed",
                       (int)(v / 10000), (int)(v / 100 % 100));
}

ebb_status ebb_lt_open(void)
{
    (void)pthread_once(&once, open_library);
    if (trouble[0] == 0)
        return NULL;
    return ebb_hint(ebb_error(EBB_DEVICE, "%s", trouble),
                    "install CUDA 13's cuBLAS, or name its file in EBB_CUBLASLT");
}

int64_t ebb_lt_version(void)
{
    return ebb_lt_open() == NULL ? (int64_t)lt.GetVersion() : 0;
}

void ebb_lt_library(char *text, size_t size, bool device)
{
    char version[48];
    void *handle = NULL;
    const ebb_status status = device ? ebb_lt_handle_new(&handle) : ebb_lt_open();
    ebb_lt_handle_free(handle);
    const int64_t v = ebb_lt_version();
    (void)snprintf(version, sizeof version, "%d.%d.%d", (int)(v / 10000), (int)(v / 100 % 100),
                   (int)(v % 100));
    ebb_library_list(text, size, status == NULL ? "cuBLASLt" : "cuBLASLt 13",
                     status == NULL ? version : NULL, ebb_status_text(status));
}

static ebb_status check(cublasStatus_t code, const char *what)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return NULL;
    return ebb_error(code == CUBLAS_STATUS_NOT_SUPPORTED ? EBB_UNSUPPORTED : EBB_RUNTIME,
                     "cuBLASLt: %s: %s", what, lt.GetStatusString(code));
}

ebb_status ebb_lt_handle_new(void **handle)
{
    cublasLtHandle_t made = NULL;
    *handle = NULL;
    EBB_TRY(ebb_lt_open());
    cublasStatus_t code = lt.Create(&made);
    if (code != CUBLAS_STATUS_SUCCESS)
        return ebb_error(EBB_DEVICE, "cuBLASLt cannot use the device: %s",
                         lt.GetStatusString(code));
    *handle = made;
    return NULL;
}

void ebb_lt_handle_free(void *handle)
{
    if (handle != NULL)
        (void)lt.Destroy((cublasLtHandle_t)handle);
}

/* ---- plans ---- */

struct ebb_lt_plan {
    ebb_lt_problem problem;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t left, right, result;
    cublasLtMatmulAlgo_t algorithm;
    bool has_algorithm;
};

static uint32_t align_of(const ebb_lt_problem *p)
{
    return p->align > 0 && p->align < 256 ? p->align : 256;
}

static cudaDataType_t type_of(uint32_t dtype)
{
    return dtype == EBB_F64    ? CUDA_R_64F
           : dtype == EBB_F16  ? CUDA_R_16F
           : dtype == EBB_BF16 ? CUDA_R_16BF
                               : CUDA_R_32F;
}

/* 16-bit products are summed in float32; so are float32 ones, unless TF32 is allowed. */
static cublasComputeType_t compute_of(const ebb_lt_problem *p)
{
    if (p->dtype == EBB_F64)
        return CUBLAS_COMPUTE_64F;
    return p->dtype == EBB_F32 && p->tf32 != 0 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static ebb_status make_layout(cublasLtMatrixLayout_t *layout, const ebb_lt_problem *p,
                              const ebb_lt_matrix *m)
{
    const int32_t batches = (int32_t)p->map.batches;
    const bool is_wide = p->wide != 0 && m == &p->map.result;
    EBB_TRY(check(lt.MatrixLayoutCreate(layout, type_of(is_wide ? EBB_F32 : p->dtype),
                                        (uint64_t)m->rows, (uint64_t)m->columns, m->lead),
                  "describing a matrix"));
    EBB_TRY(check(lt.MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                              sizeof batches),
                  "describing a batch"));
    return check(lt.MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &m->next, sizeof m->next),
                 "describing a batch");
}

static ebb_status set(ebb_lt_plan *plan, cublasLtMatmulDescAttributes_t what, const void *value,
                      size_t bytes)
{
    return check(lt.MatmulDescSetAttribute(plan->product, what, value, bytes),
                 "describing a product");
}

/* A call's bias; only its alignment matters before. */
static ebb_status set_bias(ebb_lt_plan *plan, void *bias)
{
    if (plan->problem.bias == 0)
        return NULL;
    return set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

static ebb_status describe(ebb_lt_plan *plan)
{
    const ebb_lt_problem *p = &plan->problem;
    const int32_t turned[2] = {p->map.left.turned != 0 ? CUBLAS_OP_T : CUBLAS_OP_N,
                               p->map.right.turned != 0 ? CUBLAS_OP_T : CUBLAS_OP_N};
    EBB_TRY(check(lt.MatmulDescCreate(&plan->product, compute_of(p),
                                      p->dtype == EBB_F64 ? CUDA_R_64F : CUDA_R_32F),
                  "describing a product"));
    EBB_TRY(set(plan, CUBLASLT_MATMUL_DESC_TRANSA, &turned[0], sizeof turned[0]));
    EBB_TRY(set(plan, CUBLASLT_MATMUL_DESC_TRANSB, &turned[1], sizeof turned[1]));
    const cublasLtEpilogue_t epilogue =
        p->bias != 0 ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    EBB_TRY(set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    EBB_TRY(set_bias(plan, (void *)(uintptr_t)align_of(p)));
    EBB_TRY(make_layout(&plan->left, p, &p->map.left));
    EBB_TRY(make_layout(&plan->right, p, &p->map.right));
    return make_layout(&plan->result, p, &p->map.result);
}

ebb_status ebb_lt_plan_new(ebb_lt_plan **plan, const ebb_lt_problem *problem)
{
    *plan = NULL;
    EBB_TRY(ebb_lt_open());
    ebb_lt_plan *made = ebb_alloc(sizeof *made);
    EBB_GOT(made);
    memset(made, 0, sizeof *made);
    made->problem = *problem;
    ebb_status status = describe(made);
    if (status != NULL) {
        ebb_lt_plan_free(made);
        return status;
    }
    *plan = made;
    return NULL;
}

void ebb_lt_plan_free(ebb_lt_plan *plan)
{
    if (plan == NULL)
        return;
    if (plan->product != NULL)
        (void)lt.MatmulDescDestroy(plan->product);
    const cublasLtMatrixLayout_t layouts[] = {plan->left, plan->right, plan->result};
    for (int i = 0; i < 3; i++)
        if (layouts[i] != NULL)
            (void)lt.MatrixLayoutDestroy(layouts[i]);
    ebb_free(plan);
}

static ebb_status ask(ebb_lt_plan *plan, void *handle, cublasLtMatmulPreference_t wishes)
{
    enum { PROPOSALS = 8 };
    cublasLtMatmulHeuristicResult_t found[PROPOSALS];
    const uint64_t bytes = plan->problem.workspace_bytes;
    const uint32_t schemes = 0; // no sums of parts
    int count = 0;
    EBB_TRY(check(lt.MatmulPreferenceSetAttribute(wishes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &bytes, sizeof bytes),
                  "asking for algorithms"));
    EBB_TRY(check(lt.MatmulPreferenceSetAttribute(
                      wishes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes),
                  "asking for algorithms"));
    static const cublasLtMatmulPreferenceAttributes_t begins[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t align = align_of(&plan->problem);
    for (int i = 0; i < 4; i++)
        EBB_TRY(check(lt.MatmulPreferenceSetAttribute(wishes, begins[i], &align, sizeof align),
                      "asking for algorithms"));
    EBB_TRY(check(lt.MatmulAlgoGetHeuristic((cublasLtHandle_t)handle, plan->product, plan->left,
                                            plan->right, plan->result, plan->result, wishes,
                                            PROPOSALS, found, &count),
                  "asking for algorithms"));
    for (int i = 0; i < count && !plan->has_algorithm; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= bytes) {
            plan->algorithm = found[i].algo;
            plan->has_algorithm = true;
        }
    if (plan->has_algorithm)
        return NULL;
    return ebb_error(EBB_UNSUPPORTED, "cuBLASLt has no algorithm for this product");
}

ebb_status ebb_lt_plan_find(ebb_lt_plan *plan, void *handle)
{
    cublasLtMatmulPreference_t wishes = NULL;
    EBB_TRY(check(lt.MatmulPreferenceCreate(&wishes), "asking for algorithms"));
    ebb_status status = ask(plan, handle, wishes);
    (void)lt.MatmulPreferenceDestroy(wishes);
    return status;
}

ebb_status ebb_lt_plan_run(ebb_lt_plan *plan, void *handle, const ebb_lt_operands *o, void *stream)
{
    const float narrow[2] = {(float)o->alpha, (float)o->beta};
    const double wide[2] = {o->alpha, o->beta};
    const bool is_wide = plan->problem.dtype == EBB_F64;
    if (!plan->has_algorithm)
        return ebb_error(EBB_USAGE, "cuBLASLt: no algorithm was found for this product");
    EBB_TRY(set_bias(plan, o->bias));
    return check(lt.Matmul((cublasLtHandle_t)handle, plan->product,
                           is_wide ? (const void *)&wide[0] : &narrow[0], o->b, plan->left, o->a,
                           plan->right, is_wide ? (const void *)&wide[1] : &narrow[1],
                           o->beta != 0 ? o->c : o->y, plan->result, o->y, plan->result,
                           &plan->algorithm, o->workspace, plan->problem.workspace_bytes,
                           (cudaStream_t)stream),
                 "a product");
}
