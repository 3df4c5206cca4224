/*
 * How the parent and its worker process talk: one fixed-size message each way, with payload behind
 * it, over two pipes that are nothing else (the worker's stdout and stderr stay free for what
 * libraries print). Both ends are the same program, so structs travel as they are. The parent asks,
 * the worker answers in order; SAMPLE is answered once per sample, as each is taken.
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
 * An answer whose state is not FA2I_ANSWER_OK has a sentence as its payload, and says in status and
 * result what kind of failure it is: whose fault that is, the parent decides. The outputs of CHECK
 * are the device's arrays as they lie there (fa2i_case_extent), in the order of the operands; or the
 * rows at the places (fa2i_place), packed.
 */
#ifndef FA2I_PROTOCOL_H
#define FA2I_PROTOCOL_H

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

/* What comes before the run of a sample. */
typedef enum fa2i_warmth {
    FA2I_WARMTH_COLD, /* of one launch a flush of the L2; of more nothing */
    FA2I_WARMTH_WARM, /* nothing */
    FA2I_WARMTH_BUSY /* the same run, untimed, while the host asks for the one that counts; nothing if it takes
                       * more than FA2I_BUSY_MOST_MS, where neither L2 nor host would show */
} fa2i_warmth;

#define FA2I_BUSY_MOST_MS 10.0f

typedef enum fa2i_answer {
    FA2I_ANSWER_OK = 0,
    FA2I_ANSWER_FAILED, /* this request failed; the worker goes on */
    FA2I_ANSWER_BROKEN, /* a sticky CUDA error: the worker exits after this answer */
    FA2I_ANSWER_LATE    /* the device did not finish in patience_s; the worker exits after this answer */
} fa2i_answer;

typedef struct fa2i_message {
    uint32_t magic;
    uint32_t request; /* fa2i_request; an answer repeats it */
    uint32_t state;   /* fa2i_answer */
    uint32_t id;
    uint32_t count; /* CHECK's answer: words of the guards that were overwritten; PROBE's: blocks */
    uint32_t launches;
    uint32_t status; /* of a failure: fa2_status */
    int32_t result;  /* of a failure: the CUresult; CUDA_SUCCESS if it is not known */
    uint64_t bytes;  /* of the payload */
    double us;
    double patience_s; /* of CHECK, SAMPLE, PROBE: the longest that the worker waits for the device at once (watch.h) */
} fa2i_message;

/* What a kernel needs besides its image. */
typedef struct fa2i_kernel_head {
    fa2i_variant variant;
    char target[16];
} fa2i_kernel_head;

/* One launch of a kernel that measures the card (templates/bench/params.cu.in), on as many blocks as the
 * card holds at once; on a software device, on one for each SM. */
typedef struct fa2i_probe {
    int64_t bytes; /* of each of two areas of memory: about, and 16 for each thread at least */
    int32_t iterations;
    int32_t reserved;
} fa2i_probe;

typedef enum fa2i_pipe {
    FA2I_PIPE_OK,
    FA2I_PIPE_CLOSED, /* the other end is gone, or an error */
    FA2I_PIPE_LATE    /* the deadline passed */
} fa2i_pipe;

/* All bytes, or not OK. deadline_s: on fa2i_now_s's clock; 0: none. Signals are ignored. */
fa2i_pipe fa2i_pipe_read(int fd, void *data, size_t bytes, double deadline_s);
fa2i_pipe fa2i_pipe_write(int fd, const void *data, size_t bytes);

/* Message, then payload (message->bytes of it). Sets the magic. */
fa2i_pipe fa2i_pipe_send(int fd, fa2i_message *message, const void *payload);

#endif
