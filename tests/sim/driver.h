/*
 * The state of the driver functions: the devices, each with its primary context, and their objects.
 *
 * Work runs when it is submitted, in the calling thread, with blocks on all cores of the host. So streams are in order,
 * and all work is finished when a call returns. Time is a clock that only modelled work advances. Errors of kernels are
 * sticky, as on real devices: every later call in that context returns them. Devices are separate: calls in the context
 * of one do not know memory and objects of another. But any context may release any of them.
 *
 * All functions are thread-safe by one lock. sim_enter takes it; a launch holds it.
 */
#pragma once

#include "sim.h"

typedef enum sim_object_kind {
    SIM_OBJECT_MODULE = 0x5301,
    SIM_OBJECT_FUNCTION,
    SIM_OBJECT_STREAM,
    SIM_OBJECT_EVENT,
    SIM_OBJECT_GRAPH,
    SIM_OBJECT_GRAPH_EXEC
} sim_object_kind;

typedef struct sim_device sim_device;

/* The first member of every object. */
typedef struct sim_object {
    sim_object_kind kind;
    sim_device *device;
    struct sim_object *next;
} sim_object;

typedef struct sim_function {
    sim_object object;
    sim_program program;
    bool shares_registers; /* warps release and request registers: a block begins with all that it may have */
    int dynamic_limit;     /* opt-in limit of dynamic shared memory, in bytes */
} sim_function;

typedef struct sim_module {
    sim_object object;
    ptx_module ptx;
    sim_function *functions;
    size_t function_count;
} sim_module;

typedef struct sim_event {
    sim_object object;
    bool recorded;
    double at_us;
} sim_event;

/* Work of a stream: a launch or a fill. */
typedef struct sim_work {
    sim_function *function; /* NULL: a fill */
    unsigned grid[3], threads[3];
    unsigned dynamic_bytes;
    bool early;      /* programmatic launch: it need not wait for the launch before */
    uint8_t *params; /* owned by the work if it is a graph's node */
    CUdeviceptr fill;
    unsigned value;
    size_t words;
} sim_work;

typedef struct sim_graph {
    sim_object object;
    sim_work *nodes;
    size_t count, capacity;
} sim_graph;

typedef struct sim_stream {
    sim_object object;
    sim_graph *capture; /* NULL: not capturing */
    bool capture_broken;
} sim_stream;

/* One card. Its address is the handle of its primary context, the only one it has. */
struct sim_device {
    const sim_card *card;
    sim_memory memory;
    sim_shadow_pool shadows; /* for its launches */
    int retained;            /* of the primary context */
    uint32_t launches;
    double clock_us;
    bool hung;
    CUresult error; /* sticky */
    char message[SIM_MESSAGE_BYTES];
    /* the last launch */
    sim_totals totals;
    double last_us;
    const sim_program *last_program;
    sim_count *last_counts;
    char *last_lines; /* result of fa2_sim_lines after the program is gone */
};

enum { SIM_DEVICES_MAX = 8 };

typedef struct sim_driver {
    bool started; /* cuInit was called */
    CUresult start_error;
    sim_device devices[SIM_DEVICES_MAX];
    int device_count;
    sim_object *objects; /* all live ones, except functions */
    unsigned host_threads;
    uint64_t budget;
    bool reverse;
} sim_driver;

extern sim_driver sim_the_driver;

/* Returns the device whose context is current in this thread, or the first device. */
sim_device *sim_here(void);

/* Returns the device of a handle, or NULL. */
sim_device *sim_device_of(CUdevice handle);

/* Takes the lock. The result is an error to return: not initialised, no context, or a sticky error. The lock is held in
 * any case, until sim_leave, which returns its argument. */
CUresult sim_enter(bool needs_context);
CUresult sim_leave(CUresult result);

/* Waits for this thread's device: returns at once, or never if it hangs. */
void sim_wait(void);

/* Objects of this thread's device. */
void *sim_object_add(size_t bytes, sim_object_kind kind);
void *sim_object_find(const void *handle, sim_object_kind kind);     /* NULL: not an object of this device */
void *sim_object_anywhere(const void *handle, sim_object_kind kind); /* of any device */
void sim_object_remove(void *object);                                /* and frees it */

/* Runs work now. */
CUresult sim_do_work(const sim_work *work);

/* Runs work, or adds it to the graph that the stream captures. Copies the parameters. */
CUresult sim_submit(CUstream stream, const sim_work *work);
/* Keeps the result of fa2_sim_lines if this program, the last launch's, is about to be released. */
void sim_keep_lines(sim_device *device, const sim_program *program);
void sim_graph_clear(sim_graph *graph);
bool sim_stream_is(CUstream stream, sim_stream **ret_stream); /* false: no such stream; NULL: default */

int sim_function_registers(const sim_function *function);
void sim_module_destroy(sim_module *module);
