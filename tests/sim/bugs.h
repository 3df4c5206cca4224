/*
 * Bugs to be planted in the kernels (test_bugs.c): a replacement in the CUDA text that the generator
 * makes, the shape that shows it, and what must be said of it. Those named "none" plant nothing.
 */
#ifndef SIM_BUGS_H
#define SIM_BUGS_H

#include <stddef.h>

typedef struct bug {
    const char *name, *card;
    const char *needles[3];   /* that the candidate's text has, or has not: "!..."; NULL: no more */
    const char *from, *to;    /* in the source */
    int occurrence;           /* of from, counted from 1 */
    const char *shape;        /* as --shape; else two query heads for a key head, D=64 */
    const char *said, *where; /* parts of the report */
} bug;

typedef struct bug_list {
    const bug *bugs;
    size_t count;
} bug_list;

extern const bug_list forward_bugs, feature_bugs, backward_bugs, hopper_bugs;

/* ---- shapes ---- */

/* Before a shape: the scores of the first keys, whose tile is visited last, are by far the largest. */
#define LATE     "late,"
#define BACKWARD "op=backward,Sq=200,causal=1"
#define SHORT    "op=backward,Sq=300,Sk=100,causal=1"
#define PACKED   "op=backward,B=5,Sq=150,Tq=500,Tk=430,causal=1"
#define PREFIX   "Sq=200,causal=1,window=2,Wl=77"
#define CHUNKS   "Sq=200,window=3,Wl=70"
#define CAPPED   "op=backward,Sq=300,softcap=1,Wl=70,Wr=5"

/* ---- what candidates have ---- */

#define JOINT                                                                                      \
    {                                                                                              \
        "kstages=2 vstages=2", "q=smem", "swizzle"                                                 \
    }
#define SEPARATE                                                                                   \
    {                                                                                              \
        "kstages=1 vstages=1", "q=reg", "swizzle"                                                  \
    }
#define TURING                                                                                     \
    {                                                                                              \
        "kstages=1 vstages=1", "q=reg", "swizzle"                                                  \
    }

/* A family that splits: two teams, each of two warps. */
#define TEAMS                                                                                      \
    {                                                                                              \
        "fwd_splitkv", " br=32 ", "warps=4 teams=2"                                                \
    }

/* The same where a window leaves few keys, or a key costs more: a warp each. */
#define NARROW_TEAMS                                                                               \
    {                                                                                              \
        "fwd_splitkv", " br=16 ", "teams=2"                                                        \
    }

/* Two tiles are on their way while a third one is read. */
#define STAGES                                                                                     \
    {                                                                                              \
        "fwd_splitkv", "kstages=3 vstages=3", "q=reg"                                              \
    }

/* Fewer columns of V; four warps that divide columns, for few queries and for many. */
#define FEWER_VALUES                                                                               \
    {                                                                                              \
        "fwd_sm80", " dv=128 "                                                                     \
    }
#define DIVIDED                                                                                    \
    {                                                                                              \
        "fwd_splitkv", " parts=4 ", " teams=1 "                                                    \
    }
#define DIVIDED_ROWS                                                                               \
    {                                                                                              \
        "fwd_sm", " parts=4 "                                                                      \
    }

/* Backward: the same with fewer columns of V; and dQ by blocks of its own. */
#define FEWER_ADDED                                                                                \
    {                                                                                              \
        " dv=", " qwarps=2 ", "dq=red"                                                             \
    }
#define FEWER_APART                                                                                \
    {                                                                                              \
        " dv=", "dq=apart", "stages=1"                                                             \
    }

/* Backward in turns, with blocks that begin in the reverse of their order. */
#define TURNS                                                                                      \
    {                                                                                              \
        " qwarps=2 ", "deterministic=1", "dq=red"                                                  \
    }

/* Backward: dQ is added to; warps exchange P and dS. */
#define ADDED                                                                                      \
    {                                                                                              \
        " qwarps=2 ", "stages=2 barriers=2", "dq=red"                                              \
    }

/* Several blocks share the queries of a tile of keys. */
#define SHARED                                                                                     \
    {                                                                                              \
        "swizzle", "split=1"                                                                       \
    }

/* A block that has all keys of a head. */
#define WHOLE                                                                                      \
    {                                                                                              \
        "bwd_sm80", "dq=whole", "bc=128"                                                           \
    }

/* Backward: dQ has blocks of its own. */
#define APART                                                                                      \
    {                                                                                              \
        "dq=apart", "rows=prepared", "stages=1"                                                    \
    }
/* By however many stages. */
#define APART_STAGED                                                                               \
    {                                                                                              \
        "dq=apart", "rows=prepared", NULL                                                          \
    }

#endif
