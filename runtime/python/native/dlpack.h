/*
 * DLPack 1.x: the structures by which array libraries lend tensors to each other, and the table of C functions that
 * newer libraries offer for it. The table is in a capsule named "dlpack_exchange_api", the attribute
 * __dlpack_c_exchange_api__ of the tensor's type. Only the parts that fa2 uses; layouts are the standard's.
 */
#pragma once

#include <stdint.h>

enum { DL_MAJOR = 1, DL_CUDA = 2, DL_READ_ONLY = 1 };

/* Codes of types. */
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6, DL_FLOAT8_E4M3FN = 10 };

typedef struct dl_version {
    uint32_t major, minor;
} dl_version;

typedef struct dl_device {
    int32_t type; /* DL_CUDA ... */
    int32_t id;
} dl_device;

typedef struct dl_dtype {
    uint8_t code; /* DL_FLOAT ... */
    uint8_t bits;
    uint16_t lanes;
} dl_dtype;

typedef struct dl_tensor {
    void *data; /* address in the device's memory */
    dl_device device;
    int32_t ndim;
    dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL, before 1.2: row-major */
    uint64_t byte_offset;
} dl_tensor;

/* DLPack before 1.0. Capsules are named "dltensor". */
typedef struct dl_managed {
    dl_tensor tensor;
    void *manager;
    void (*deleter)(struct dl_managed *self); /* may be NULL */
} dl_managed;

/* Capsules are named "dltensor_versioned". If version.major differs, only deleter may be accessed. */
typedef struct dl_managed_versioned {
    dl_version version;
    void *manager;
    void (*deleter)(struct dl_managed_versioned *self); /* may be NULL */
    uint64_t flags;                                     /* DL_READ_ONLY ... */
    dl_tensor tensor;
} dl_managed_versioned;

typedef struct dl_exchange_header {
    dl_version version;
    struct dl_exchange_header *previous; /* a table of an older version, or NULL */
} dl_exchange_header;

/* The functions return 0, or -1 with a Python exception. None of them waits for a stream. */
typedef struct dl_exchange {
    dl_exchange_header header;
    int (*allocate)(dl_tensor *prototype, dl_managed_versioned **ret_tensor, void *error_context,
                    void (*set_error)(void *error_context, const char *kind, const char *message));
    int (*from_object)(void *object, dl_managed_versioned **ret_tensor);
    int (*to_object)(dl_managed_versioned *tensor, void **ret_object); /* takes the tensor */
    int (*view_object)(void *object, dl_tensor *ret_view);             /* borrows; may be NULL */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **ret_stream);
} dl_exchange;
