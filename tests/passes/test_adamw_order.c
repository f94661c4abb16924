/* test_adamw_order.c: AdamW in the two orders in which libraries have it, with and without
 * correction of young moments, against the formulas in double.
 */
#include <math.h>
#include <stdio.h>

#include "ebb.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/owned.h"
#include "tests/status.h"

/* loss = sum of a w^2, so that w's gradient is 2 a w. */
static const char text[] = "<ir_version: 10, opset_import: [\"\" : 20]>\n"
                           "g () => (float loss) <float[3] w = {0.5,-1.0,0.001}, float[3] "
                           "slope = {1.0,0.25,0.001}> {\n"
                           "   square = Mul (w, w)\n   each = Mul (square, slope)\n"
                           "   loss = ReduceSum <keepdims = 0> (each)\n}";
static const double slope[3] = {1.0, 0.25, (double)0.001f};

enum { STEPS = 4 };
/* Rates as a schedule gives them, by step; a run that asks for one rate has the first. */
static const double rates[STEPS] = {0.1, 0.05, 0.2, 0.025};
static const double alpha = 0.75, beta = 0.875, epsilon = 0.01, decay = 0.5;

static void by_formula(double w[3], bool transformers, bool correct, bool scheduled)
{
    double m[3] = {0}, v[3] = {0};
    for (int t = 1; t <= STEPS; t++) {
        double rate = rates[scheduled ? t - 1 : 0];
        double am = correct ? 1 - pow(alpha, t) : 1, av = correct ? 1 - pow(beta, t) : 1;
        for (int i = 0; i < 3; i++) {
            double g = 2 * slope[i] * w[i];
            m[i] = alpha * m[i] + (1 - alpha) * g;
            v[i] = beta * v[i] + (1 - beta) * g * g;
            if (transformers) { // epsilon beside the uncorrected root; decay of what came out
                w[i] -= rate * sqrt(av) / am * m[i] / (sqrt(v[i]) + epsilon);
                w[i] -= rate * decay * w[i];
            } else {
                w[i] -= rate * decay * w[i];
                w[i] -= rate / am * m[i] / (sqrt(v[i] / av) + epsilon);
            }
        }
    }
}

static void steps_agree(bool transformers, bool correct, bool scheduled)
{
    char pipeline[512];
    OWNED_MODEL *m = NULL;
    OWNED_PROGRAM *p = NULL;
    ebb_named got;
    double want[3] = {0.5, -1.0, (double)0.001f};
    (void)snprintf(pipeline, sizeof pipeline,
                   "loss:name=loss,gradient:train=w,optimizer:adamw,lr=%g,beta1=%g,beta2=%g,"
                   "epsilon=%g,weight-decay=%g,order=%s,correct-bias=%d,fold",
                   rates[0], alpha, beta, epsilon, decay, transformers ? "transformers" : "pytorch",
                   (int)correct);
    good(ebb_text_parse_model(&m, text));
    good(ebb_infer_graph(m->graph));
    good(ebb_rewrite(m, pipeline, NULL, NULL));
    good(ebb_program_compile(&p, m, NULL));
    for (int t = 0; t < STEPS; t++) {
        const float rate = (float)rates[t];
        const ebb_named now = {"ebb.lr", EBB_F32, 0, NULL, &rate};
        if (scheduled)
            good(ebb_program_set(p, &now));
        good(ebb_program_step(p, NULL));
    }
    good(ebb_program_get(p, "w", &got));
    by_formula(want, transformers, correct, scheduled);
    for (int i = 0; i < 3; i++)
        assert_true(fabs((double)((const float *)got.data)[i] - want[i]) < 2e-6);
}

TEST(each_order_takes_the_steps_of_its_formula)
{
    for (int transformers = 0; transformers < 2; transformers++)
        for (int correct = 0; correct < 2; correct++)
            steps_agree(transformers != 0, correct != 0, false);
}

/* The rate is an initializer that a schedule sets between steps: folding must not take the first
 * one for all, not in the decay either. */
TEST(each_step_has_its_own_rate)
{
    for (int transformers = 0; transformers < 2; transformers++)
        for (int correct = 0; correct < 2; correct++)
            steps_agree(transformers != 0, correct != 0, true);
}
