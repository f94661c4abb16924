#include "tests/test.h"

int main(void)
{
    return run_listed();
}
