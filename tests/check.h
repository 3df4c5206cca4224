/*
 * Checks for tests. A failed check prints both sides and is counted, and the test goes on. NDEBUG has no effect. End
 * main with `return check_done();`. A test that cannot run here says why and returns CHECK_SKIP.
 */
#pragma once

#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) && defined(NDEBUG)
#error "the sanitized build must run the assertions"
#endif

enum { CHECK_SKIP = 77 };

/* 1 in the sanitized build. Tests of many cases take a sample of them there, and all of them in the dev build. */
#ifdef __SANITIZE_ADDRESS__
enum { CHECK_IS_SANITIZED = 1 };
#else
enum { CHECK_IS_SANITIZED = 0 };
#endif

static int check_count, check_failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        check_count++;                                                                                                 \
        if (!(condition)) {                                                                                            \
            check_failures++;                                                                                          \
            fprintf(stderr, "%s:%d: false: %s\n", __FILE__, __LINE__, #condition);                                     \
        }                                                                                                              \
    } while (0)

#define CHECK_EQ(actual, expected)                                                                                     \
    do {                                                                                                               \
        long long check_a = (long long)(actual), check_e = (long long)(expected);                                      \
        check_count++;                                                                                                 \
        if (check_a != check_e) {                                                                                      \
            check_failures++;                                                                                          \
            fprintf(stderr, "%s:%d: %s is %lld, expected %lld\n", __FILE__, __LINE__, #actual, check_a, check_e);      \
        }                                                                                                              \
    } while (0)

#define CHECK_STR(actual, expected)                                                                                    \
    do {                                                                                                               \
        const char *check_a = (actual), *check_e = (expected);                                                         \
        check_count++;                                                                                                 \
        if (strcmp(check_a, check_e) != 0) {                                                                           \
            check_failures++;                                                                                          \
            fprintf(stderr, "%s:%d: %s is \"%s\", expected \"%s\"\n", __FILE__, __LINE__, #actual, check_a, check_e);  \
        }                                                                                                              \
    } while (0)

#define CHECK_CONTAINS(actual, part)                                                                                   \
    do {                                                                                                               \
        const char *check_a = (actual), *check_p = (part);                                                             \
        check_count++;                                                                                                 \
        if (strstr(check_a, check_p) == NULL) {                                                                        \
            check_failures++;                                                                                          \
            fprintf(stderr, "%s:%d: %s is \"%s\", expected to contain \"%s\"\n", __FILE__, __LINE__, #actual, check_a, \
                    check_p);                                                                                          \
        }                                                                                                              \
    } while (0)

static inline int check_done(void)
{
    fprintf(stderr, "%d checks, %d failed\n", check_count, check_failures);
    return check_failures == 0 && check_count > 0 ? 0 : 1;
}
