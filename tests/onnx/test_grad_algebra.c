/* test_grad_algebra.c: the gradient rules of further functions, sums of products, transforms and
 * attention. */
#include "grad.h"

static const grad_case cases[] = {
#include "grad_algebra.def"
};

TEST(every_rule_agrees_with_the_difference_quotient)
{
    all_cases_pass(cases, sizeof cases / sizeof cases[0], first_order_passes);
}
