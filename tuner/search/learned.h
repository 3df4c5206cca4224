/*
 * What the problems measured so far teach about the cost model: for each kernel, by which factor
 * it is off, beyond what it is off by for all kernels of a problem alike. So the ranks of the next
 * problem of the class are better than the model's, and a kernel that is sure to be far behind
 * need not be measured.
 *
 * Pure; not thread-safe. Factors are kept as sums of logarithms.
 */
#ifndef FA2I_LEARNED_H
#define FA2I_LEARNED_H

#include <stdbool.h>
#include <stddef.h>

/* Of a kernel. Zeroed: nothing is known. */
typedef struct fa2i_learned {
    double sum;
    size_t problems;
} fa2i_learned;

/* One kernel on one problem. */
typedef struct fa2i_lesson {
    fa2i_learned *learned;
    double model_us;
    double measured_us; /* 0: it was not measured */
    bool hopeless;      /* result of fa2i_learned_judge */
} fa2i_lesson;

/* A kernel is left out that two problems at least have taught about, and that is behind the best
 * of those by this. The probe drops what is behind by FA2I_SEARCH_PROBE_KEEP; the rest is for what
 * the factors are not sure of. */
#define FA2I_LEARNED_BEHIND 1.4
enum { FA2I_LEARNED_PROBLEMS = 2 };

/* Which kernels are hopeless. */
void fa2i_learned_judge(fa2i_lesson *lessons, size_t count);

/* Take in a problem's measurements: two at least, or nothing is learned. */
void fa2i_learned_add(fa2i_lesson *lessons, size_t count);

#endif
