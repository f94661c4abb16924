/* rates.c: a table of data sheets.
 *
 * Peaks, which no kernel reaches; but products and copies fall short of theirs by like parts, and
 * plans are compared by what is left: how many operations weigh as much as a byte. That is 295 of
 * products in 16 bits on an H100, and 5 on a core of the host.
 *
 * Products are without sparsity, in 16 bits with sums in float32. Sources: NVIDIA's data sheets of
 * H100, H200 (SXM), A100 (80 GB, SXM) and L4, and its paper on the Ada architecture (RTX 4090).
 */
#include "kernels/cuda/library/rates.h"

#include <ctype.h>
#include <stddef.h>

/* LAUNCH: from one kernel's end to the next one's work in a recorded step, in ns: some microseconds
 * by what is said of CUDA graphs; nobody has measured it here. */
#define LAUNCH 2000

typedef struct row {
    const char *name;  /* that a driver's name holds, as a word */
    ebb_rates full;    /* float32 is float32 */
    ebb_rates allowed; /* TF32 is allowed */
} row;

/* products of 16 bits, of TF32, all else in float32: TFLOP/s, thousand operations a nanosecond;
 * memory: GB/s, bytes a nanosecond; link: the same, four fifths of what 16 lanes of PCIe 4.0 (31.5) or
 * 5.0 (63) carry. */
#define DISK    \
    {           \
        1, 1, 0 \
    } // 1 GB/s; the device computes on
#define LINK(rate)                    \
    {                                 \
        1.0 / (rate), 1.0 / (rate), 0 \
    }
#define ROW(name, products, tf32, others, memory, link)                                           \
    {                                                                                             \
        name,                                                                                     \
            {1e3 * (products), 1e3 * (others), 1e3 * (others), memory, LAUNCH, DISK, LINK(link)}, \
        {                                                                                         \
            1e3 * (products), 1e3 * (tf32), 1e3 * (others), memory, LAUNCH, DISK, LINK(link)      \
        }                                                                                         \
    }

static const row rows[] = {
    ROW("A100", 312, 156, 19.5, 2039, 25),       // the first stands for those that are not here
    ROW("H100", 989, 494, 67, 3350, 50),         //
    ROW("H200", 989, 494, 67, 4800, 50),         //
    ROW("L4", 121, 60, 30.3, 300, 25),           //
    ROW("RTX 4090", 165.2, 82.6, 82.6, 1008, 25) //
};

/* Letters and digits alone, upper and lower case as one; the end of a word is told from its midst:
 * an L40 is no L4. */
static bool names(const char *text, const char *name)
{
    for (; *text != '\0'; text++) {
        const char *t = text, *n = name;
        while (*n != '\0') {
            if (*n == ' ') { // "rtx4090"
                n++;
                t += *t == ' ';
            } else if (toupper((unsigned char)*t) == *n) {
                n++;
                t++;
            } else
                break;
        }
        if (*n == '\0' && !isalnum((unsigned char)*t))
            return true;
    }
    return false;
}

const ebb_rates *ebb_cuda_rates(const char *name, bool tf32)
{
    const row *found = &rows[0];
    for (size_t i = sizeof rows / sizeof rows[0]; i-- > 0;)
        if (names(name, rows[i].name))
            found = &rows[i];
    return tf32 ? &found->allowed : &found->full;
}
