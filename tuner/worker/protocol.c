#include <errno.h>
#include <poll.h>
#include <unistd.h>
#include "runtime/base/clock.h"
#include "tuner/worker/protocol.h"

/* Waits until fd has something to read. */
static fa2i_pipe wait_readable(int fd, double deadline_s)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    for (;;) {
        int timeout_ms = -1;
        if (deadline_s > 0) {
            double left_s = deadline_s - fa2i_now_s();
            if (left_s <= 0)
                return FA2I_PIPE_LATE;
            timeout_ms = left_s > 1e6 ? 1000000000 : (int)(left_s * 1e3) + 1;
        }
        int ready = poll(&entry, 1, timeout_ms);
        if (ready > 0)
            return FA2I_PIPE_OK; /* or the other end is gone: read will tell */
        if (ready < 0 && errno != EINTR)
            return FA2I_PIPE_CLOSED;
    }
}

fa2i_pipe fa2i_pipe_read(int fd, void *data, size_t bytes, double deadline_s)
{
    unsigned char *next = data;
    while (bytes > 0) {
        fa2i_pipe state = wait_readable(fd, deadline_s);
        if (state != FA2I_PIPE_OK)
            return state;
        ssize_t got = read(fd, next, bytes);
        if (got == 0 || (got < 0 && errno != EINTR))
            return FA2I_PIPE_CLOSED;
        if (got > 0) {
            next += got;
            bytes -= (size_t)got;
        }
    }
    return FA2I_PIPE_OK;
}

/* Writes all bytes, or does not return FA2I_PIPE_OK. Signals do not interrupt it. */
static fa2i_pipe write_all(int fd, const void *data, size_t bytes)
{
    const unsigned char *next = data;
    while (bytes > 0) {
        ssize_t put = write(fd, next, bytes);
        if (put < 0 && errno != EINTR)
            return FA2I_PIPE_CLOSED;
        if (put > 0) {
            next += put;
            bytes -= (size_t)put;
        }
    }
    return FA2I_PIPE_OK;
}

fa2i_pipe fa2i_pipe_send(int fd, fa2i_message *message, const void *payload)
{
    message->magic = FA2I_PROTOCOL_MAGIC;
    fa2i_pipe state = write_all(fd, message, sizeof *message);
    return state != FA2I_PIPE_OK ? state : write_all(fd, payload, (size_t)message->bytes);
}
