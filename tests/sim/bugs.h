/*
 * Bugs to plant in the kernels (test_bugs.c): a replacement in the generated CUDA text, a shape that shows the bug, and
 * what the report must say. Bugs named "none" plant nothing.
 */
#pragma once

#include <stddef.h>

typedef struct bug {
    const char *name, *card;
    const char *needles[3];   /* the candidate's text has these, or lacks them: "!..."; NULL: no more */
    const char *from, *to;    /* in the source */
    int occurrence;           /* which occurrence of from, counted from 1 */
    const char *shape;        /* as --shape. Defaults: two query heads per key head, D=64 */
    const char *said, *where; /* parts of the report */
} bug;

typedef struct bug_list {
    const bug *bugs;
    size_t count;
} bug_list;

extern const bug_list forward_bugs, feature_bugs, backward_bugs, hopper_bugs, precision_bugs, int8_bugs, kv8_bugs,
    partial_bugs, fp32_bugs;

/* ---- shapes ---- */

/* Prefix of a shape: the first keys, whose tile is read last, have by far the largest scores. */
#define LATE "late,"
/* Prefix of a shape: values near the limit of fp16 sums, and scores that grow (FA2I_PATTERN_GROWN). */
#define GROWN    "grown,"
#define BACKWARD "op=backward,Sq=200,causal=1"
#define SHORT    "op=backward,Sq=300,Sk=100,causal=1"
#define PACKED   "op=backward,B=5,Sq=150,Tq=500,Tk=430,causal=1"
#define PREFIX   "Sq=200,causal=1,window=2,Wl=77"
#define CHUNKS   "Sq=200,window=3,Wl=70"
#define CAPPED   "op=backward,Sq=300,softcap=1,Wl=70,Wr=5"

/* ---- what candidates must have ---- */

#define JOINT                                                                                                          \
    {                                                                                                                  \
        "kstages=2 vstages=2", "q=smem", "swizzle"                                                                     \
    }
#define SEPARATE                                                                                                       \
    {                                                                                                                  \
        "kstages=1 vstages=1", "q=reg", "swizzle"                                                                      \
    }
#define TURING                                                                                                         \
    {                                                                                                                  \
        "kstages=1 vstages=1", "q=reg", "swizzle"                                                                      \
    }

/* A family that splits the keys: two teams of two warps. */
#define TEAMS                                                                                                          \
    {                                                                                                                  \
        "fwd_splitkv", " br=32 ", "warps=4 teams=2"                                                                    \
    }

/* The same for few visible keys, or expensive ones: teams of one warp. */
#define NARROW_TEAMS                                                                                                   \
    {                                                                                                                  \
        "fwd_splitkv", " br=16 ", "teams=2"                                                                            \
    }

/* Two tiles are being loaded while a third one is read. */
#define STAGES                                                                                                         \
    {                                                                                                                  \
        "fwd_splitkv", "kstages=3 vstages=3", "q=reg"                                                                  \
    }

/* V has fewer columns; four warps divide the columns, for few queries and for many. */
#define FEWER_VALUES                                                                                                   \
    {                                                                                                                  \
        "fwd_sm80", " dv=128 "                                                                                         \
    }
#define DIVIDED                                                                                                        \
    {                                                                                                                  \
        "fwd_splitkv", " parts=4 ", " teams=1 "                                                                        \
    }
#define DIVIDED_ROWS                                                                                                   \
    {                                                                                                                  \
        "fwd_sm", " parts=4 "                                                                                          \
    }

/* Backward: V has fewer columns; the second macro adds blocks of their own for dQ. */
#define FEWER_ADDED                                                                                                    \
    {                                                                                                                  \
        " dv=", " qwarps=2 ", "dq=atomic"                                                                              \
    }
#define FEWER_APART                                                                                                    \
    {                                                                                                                  \
        " dv=", "dq=separate", "stages=1"                                                                              \
    }

/* Backward, deterministic, with blocks that begin in reverse order. */
#define TURNS                                                                                                          \
    {                                                                                                                  \
        " qwarps=2 ", "deterministic=1", "dq=atomic"                                                                   \
    }

/* Backward: dQ is summed by atomic additions; warps exchange P and dS. */
#define ADDED                                                                                                          \
    {                                                                                                                  \
        " qwarps=2 ", "stages=2 barriers=2", "dq=atomic"                                                               \
    }

/* Several blocks share the queries of a key tile. */
#define SHARED                                                                                                         \
    {                                                                                                                  \
        "swizzle", "split=1"                                                                                           \
    }

/* One block has all keys of a head. */
#define WHOLE                                                                                                          \
    {                                                                                                                  \
        "bwd_sm80", "dq=block", "bc=128"                                                                               \
    }

/* Backward: separate blocks compute dQ. */
#define APART                                                                                                          \
    {                                                                                                                  \
        "dq=separate", "rows=prepared", "stages=1"                                                                     \
    }
/* The same with any number of stages. */
#define APART_STAGED                                                                                                   \
    {                                                                                                                  \
        "dq=separate", "rows=prepared", NULL                                                                           \
    }
