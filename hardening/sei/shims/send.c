/* Sending in handlers: it happens once, after both runs agree, and never waits for a reader that the program itself
 * would not wait for.
 *
 * The program is to be told what the kernel would say: all, a part, or EAGAIN. So the first run asks how much the
 * kernel would take now, and the program is told no more than that. Only this thread writes to the descriptor, so there
 * is at least as much room when the handler has ended, and nothing is left over: the queue of a descriptor is the
 * kernel's own.
 */
#include <sei/shim.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* What a piece takes in the kernel's buffer beside its bytes, at the most. */
#define PIECE 4096
/* A pipe that can be written to takes as much. */
#define PIPE_ROOM 4096

static const char ROOM[] = "room of a stream";

static bool is_stream(int fd) {
    int type = 0;
    socklen_t length = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type == SOCK_STREAM;
}

static bool waits(int fd, int flags) {
    int status = fcntl(fd, F_GETFL);
    return !(flags & MSG_DONTWAIT) && (status < 0 || !(status & O_NONBLOCK));
}

/* Bytes that the kernel takes, after those that this handler has been told of; 0 or less: none. */
static int64_t free_bytes(int fd) {
    int64_t bytes, pieces = (int64_t)sei_rt_earlier(ROOM, (uint64_t)fd, &bytes);
    uint32_t info[SK_MEMINFO_VARS] = {0};
    socklen_t length = sizeof info;
    if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &length) == 0) {
        uint32_t alloc = info[SK_MEMINFO_WMEM_ALLOC], queued = info[SK_MEMINFO_WMEM_QUEUED];
        int64_t unused = (int64_t)info[SK_MEMINFO_SNDBUF] - (alloc > queued ? alloc : queued);
        int64_t room = (unused - 2 * bytes - pieces * PIECE) / 2;
        /* The kernel takes the first piece of any size. */
        return pieces == 0 && room < 1 ? 1 : room;
    }
    int waiting = 0, size = fcntl(fd, F_GETPIPE_SZ);
    if (size < 0) {
        return INT64_MAX; /* a file: it takes everything */
    }
    bool is_empty = ioctl(fd, FIONREAD, &waiting) == 0 && waiting == 0;
    return (is_empty ? size : PIPE_ROOM) - bytes;
}

/* What a call that does not wait would return for n bytes. */
static int64_t room(int fd, size_t n) {
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    if (poll(&polled, 1, 0) < 0) {
        return (int64_t)n;
    }
    if (polled.revents & POLLNVAL) {
        errno = EBADF;
        return -1;
    }
    bool is_pipe = fcntl(fd, F_GETPIPE_SZ) >= 0;
    if (polled.revents & (is_pipe ? POLLERR : POLLHUP)) {
        errno = EPIPE;
        return -1;
    }
    int64_t most = polled.revents & POLLOUT ? free_bytes(fd) : 0;
    if (most <= 0 && n > 0) {
        errno = EAGAIN;
        return -1;
    }
    return (uint64_t)most < n ? most : (int64_t)n;
}

static void do_send(uint64_t fd, uint64_t flags, uint64_t unused, const uint8_t *bytes, size_t length) {
    (void)unused;
    bool is_socket = true;
    while (length > 0) {
        ssize_t sent = is_socket ? send((int)fd, bytes, length, (int)flags | MSG_NOSIGNAL)
                                 : write((int)fd, bytes, length);
        if (sent > 0) {
            bytes += sent;
            length -= (size_t)sent;
        } else if (is_socket && sent < 0 && errno == ENOTSOCK) {
            is_socket = false;
        } else if (sent == 0 || errno != EINTR) {
            /* A file lacks room; or there is no memory, or the peer has gone: no client sees a reply with a hole. */
            sei_shim_failed((int)fd, "write");
            shutdown((int)fd, SHUT_RDWR);
            return;
        }
    }
}

static void do_datagram(uint64_t fd, uint64_t flags, uint64_t unused, const uint8_t *bytes, size_t length) {
    (void)unused;
    send((int)fd, bytes, length, (int)flags | MSG_NOSIGNAL);
}

/* The program was told that the stream is full, where the kernel may find that it is not: whoever waits for the moment
 * at which it can be written to (EPOLLET) has to be told of it. If it cannot be written to now, to ask is enough for
 * the kernel to remember that; if it can, setting what is set says so. */
static void do_tell(uint64_t fd, uint64_t unused, uint64_t unused_too, const uint8_t *bytes, size_t length) {
    (void)unused, (void)unused_too, (void)bytes, (void)length;
    struct pollfd polled = {.fd = (int)fd, .events = POLLOUT};
    int lowest;
    socklen_t size = sizeof lowest;
    if (poll(&polled, 1, 0) > 0 && getsockopt((int)fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowest, &size) == 0) {
        setsockopt((int)fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowest, size);
    }
}

static ssize_t send_stream(int fd, int flags, const void *from, size_t n) {
    int before = errno;
    int64_t accepted = sei_rt_runs_first() && !waits(fd, flags) ? room(fd, n) : (int64_t)n;
    accepted = sei_rt_recorded(ROOM, RECORDED, (uint64_t)fd, n, (uint64_t)flags, accepted);
    if (accepted > 0) {
        sei_rt_defer(do_send, (uint64_t)fd, (uint64_t)flags, 0, from, (size_t)accepted);
    }
    if (accepted < (int64_t)n) {
        sei_rt_defer(do_tell, (uint64_t)fd, 0, 0, NULL, 0);
    }
    if (accepted >= 0) {
        errno = before;
    }
    return accepted;
}

ssize_t sei_call_send(int fd, const void *from, size_t n, int flags) {
    if (is_stream(fd)) {
        return send_stream(fd, flags, from, n);
    }
    sei_rt_defer(do_datagram, (uint64_t)fd, (uint64_t)flags, 0, from, n);
    return (ssize_t)n;
}

ssize_t sei_call_write(int fd, const void *from, size_t n) { return sei_call_send(fd, from, n, 0); }

/* The address goes in front of the bytes: `address_length` bytes of it. */
static void do_sendto(uint64_t fd, uint64_t flags, uint64_t address_length, const uint8_t *bytes, size_t length) {
    struct sockaddr_storage address;
    memcpy(&address, bytes, address_length);
    sendto((int)fd, bytes + address_length, length - address_length, (int)flags | MSG_NOSIGNAL,
           address_length ? (const struct sockaddr *)&address : NULL, (socklen_t)address_length);
}

/* Address and pieces as one block of bytes, which is deferred. */
static ssize_t defer_pieces(int fd, int flags, const void *address, size_t address_length, const struct iovec *pieces,
                            size_t count) {
    size_t length = address_length, at = address_length;
    if (address_length > sizeof(struct sockaddr_storage)) {
        errno = EINVAL;
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        length += pieces[i].iov_len;
    }
    uint8_t *bytes = malloc(length ? length : 1);
    if (!bytes) {
        errno = ENOMEM;
        return -1;
    }
    if (address_length) {
        memcpy(bytes, sei_rt_read_at(address), address_length);
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(bytes + at, sei_rt_read_at(pieces[i].iov_base), pieces[i].iov_len);
        at += pieces[i].iov_len;
    }
    ssize_t accepted = (ssize_t)(length - address_length);
    if (!address_length && is_stream(fd)) {
        accepted = send_stream(fd, flags, bytes, length);
    } else {
        sei_rt_defer(do_sendto, (uint64_t)fd, (uint64_t)flags, address_length, bytes, length);
    }
    free(bytes);
    return accepted;
}

ssize_t sei_call_sendto(int fd, const void *from, size_t n, int flags, const struct sockaddr *to, socklen_t length) {
    struct iovec piece = {.iov_base = (void *)from, .iov_len = n};
    return defer_pieces(fd, flags, to, to ? length : 0, &piece, 1);
}

ssize_t sei_call_writev(int fd, const struct iovec *pieces, int count) {
    if (count < 0 || count > IOV_MAX) {
        errno = EINVAL;
        return -1;
    }
    return defer_pieces(fd, 0, NULL, 0, sei_rt_read_at(pieces), (size_t)count);
}

ssize_t sei_call_sendmsg(int fd, const struct msghdr *known, int flags) {
    const struct msghdr *message = sei_rt_read_at(known);
    if (message->msg_controllen) {
        sei_rt_refuse("sendmsg with control data");
    }
    return defer_pieces(fd, flags, message->msg_name, message->msg_namelen, sei_rt_read_at(message->msg_iov),
                        message->msg_iovlen);
}
