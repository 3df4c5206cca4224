/*
 * The holder of a turn listens on a socket. A process that connects learns the holder's id from the system. Connections
 * are never accepted or read.
 */
#define _GNU_SOURCE /* for struct ucred */
#include "tuner/worker/turn.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Makes the address of a name. An abstract address begins with a 0 byte. */
static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address->sun_path + 1));
}

bool fa2i_turn_take(const char *name, fa2i_turn *ret_turn)
{
    struct sockaddr_un address;
    const socklen_t bytes = address_of(name, &address);
    const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *ret_turn = FA2I_TURN_NONE;
    if (file < 0)
        return true;
    if (bind(file, (struct sockaddr *)&address, bytes) != 0) {
        const bool taken = errno == EADDRINUSE;
        close(file);
        return !taken;
    }
    (void)listen(file, SOMAXCONN);
    ret_turn->socket = file + 1;
    return true;
}

void fa2i_turn_give_back(fa2i_turn *turn)
{
    if (turn->socket > 0)
        close(turn->socket - 1);
    *turn = FA2I_TURN_NONE;
}

pid_t fa2i_turn_holder(const char *name)
{
    struct sockaddr_un address;
    struct ucred peer = {0};
    socklen_t bytes = address_of(name, &address), peer_bytes = sizeof peer;
    const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file < 0)
        return 0;
    if (connect(file, (struct sockaddr *)&address, bytes) != 0 ||
        getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0)
        peer.pid = 0;
    close(file);
    return peer.pid;
}
