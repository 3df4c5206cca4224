/*
 * The messages between the parent and its worker process: one fixed-size message each way, followed by a payload. They
 * use two pipes of their own, so that libraries may print to the worker's stdout and stderr. Both ends are the same
 * program, so structs travel as they are. The parent asks, and the worker answers in order. SAMPLE gets one answer per
 * sample, as soon as it is taken.
 *
 *   request   fields             payload                          answer's payload
 *   OPEN      id = device        -                                -
 *   LOAD      id                 fa2i_kernel_head, image          -
 *   CASE      -                  fa2i_case                        -
 *   CHECK     id, count          count places (0: whole outputs)  the outputs
 *   SAMPLE    id = fa2i_warmth,  count ids (uint32_t)             -  (us per launch)
 *             count, launches
 *   PROBE     id                 fa2i_probe                       -  (us; count: blocks)
 *
 * If the state of an answer is not FA2I_ANSWER_OK, its payload is a sentence, and status and result give the kind of
 * failure. The parent decides what caused it. CHECK sends the device's arrays as they lie there (fa2i_case_extent), in
 * the order of the operands, or the rows at the places (fa2i_place), packed.
 */
#pragma once

#include "runtime/base/record.h"

enum { FA2I_WORKER_FD_IN = 3, FA2I_WORKER_FD_OUT = 4, FA2I_PROTOCOL_MAGIC = 0x66613277 };

typedef enum fa2i_request {
    FA2I_REQUEST_OPEN = 1,
    FA2I_REQUEST_LOAD,
    FA2I_REQUEST_CASE,
    FA2I_REQUEST_CHECK,
    FA2I_REQUEST_SAMPLE,
    FA2I_REQUEST_PROBE
} fa2i_request;

/* The step before a timed run. */
typedef enum fa2i_warmth {
    FA2I_WARMTH_COLD, /* a single launch: the L2 is flushed. A graph of launches: nothing */
    FA2I_WARMTH_WARM, /* nothing */
    FA2I_WARMTH_BUSY  /* the same run, untimed, while the host submits the timed one. Nothing if it takes more than
                       * FA2I_BUSY_MOST_MS, because then neither L2 nor host affects the time */
} fa2i_warmth;

#define FA2I_BUSY_MOST_MS 10.0f

typedef enum fa2i_answer {
    FA2I_ANSWER_OK = 0,
    FA2I_ANSWER_FAILED, /* this request failed; the worker goes on */
    FA2I_ANSWER_BROKEN, /* a sticky CUDA error: the worker exits after this answer */
    FA2I_ANSWER_LATE    /* the device did not finish within patience_s; the worker exits after this answer */
} fa2i_answer;

typedef struct fa2i_message {
    uint32_t magic;
    uint32_t request; /* fa2i_request; an answer repeats it */
    uint32_t state;   /* fa2i_answer */
    uint32_t id;
    uint32_t count; /* answer to CHECK: words of the guards that were overwritten. Answer to PROBE: blocks */
    uint32_t launches;
    uint32_t status; /* of a failure: fa2_status */
    int32_t result;  /* of a failure: the CUresult; CUDA_SUCCESS if it is not known */
    uint64_t bytes;  /* of the payload */
    double us;
    double patience_s; /* CHECK, SAMPLE, PROBE: the longest single wait of the worker for the device (watch.h) */
} fa2i_message;

/* One sample that the parent wants. contender: an index in its list of kernels. */
typedef struct fa2i_sample {
    uint32_t contender;
    bool taken;           /* false: sampling was stopped before this one */
    fa2i_outcome outcome; /* not OK: the contender is out */
    double us;            /* per launch */
} fa2i_sample;

/* The facts that a kernel needs besides its image. */
typedef struct fa2i_kernel_head {
    fa2i_variant variant;
    char target[16];
} fa2i_kernel_head;

/* One launch of a kernel that measures the card (templates/bench/params.cu.in), with as many blocks as the card holds
 * at once. A software device gets one block per SM. */
typedef struct fa2i_probe {
    int64_t bytes; /* size of each of two areas of memory: approximate, and at least 16 per thread */
    int32_t iterations;
    int32_t reserved;
} fa2i_probe;

typedef enum fa2i_pipe {
    FA2I_PIPE_OK,
    FA2I_PIPE_CLOSED, /* the other end is gone, or there was an error */
    FA2I_PIPE_LATE    /* the deadline passed */
} fa2i_pipe;

/* Reads all bytes, or does not return FA2I_PIPE_OK. deadline_s: on the clock of fa2i_now_s; 0: none. Signals do not
 * interrupt it. */
fa2i_pipe fa2i_pipe_read(int fd, void *data, size_t bytes, double deadline_s);

/* Sends the message, then its payload of message->bytes. Sets the magic. */
fa2i_pipe fa2i_pipe_send(int fd, fa2i_message *message, const void *payload);
