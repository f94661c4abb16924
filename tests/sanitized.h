/* sanitized.h: sanitizers are slow, so they see every FEWER-th of what a test repeats: enough for
 * the code's lines, while the build without them sees all for the results. */
#ifndef EBB_TESTS_SANITIZED_H
#define EBB_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1, FEWER = 8 };
#else
enum { SANITIZED = 0, FEWER = 1 };
#endif

#endif
