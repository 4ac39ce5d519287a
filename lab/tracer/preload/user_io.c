/* Loaded before the C library of a target whose `io` is "user": what it receives and sends passes through instructions
 * of the process, one byte per turn, as in SEI's experiments, which replaced sockets by files. The kernel otherwise
 * moves these bytes, where no fault can be injected. Build: gcc -O1 -shared -fPIC user_io.c */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST 65536
/* A connection's bytes on their way in and out; each thread has its own. */
static __thread char in[MOST], out[MOST];

/* Not memcpy: a byte is one load and one store. */
__attribute__((noinline)) static void move_bytes(char *to, const char *from, size_t count) {
    for (size_t at = 0; at < count; at++) {
        __asm__ volatile("" ::: "memory");
        to[at] = from[at];
    }
}

ssize_t read(int fd, void *to, size_t count) {
    ssize_t got = syscall(SYS_read, fd, in, count < MOST ? count : MOST);
    if (got > 0) {
        move_bytes(to, in, (size_t)got);
    }
    return got;
}

ssize_t recv(int fd, void *to, size_t count, int flags) {
    ssize_t got = syscall(SYS_recvfrom, fd, in, count < MOST ? count : MOST, flags, NULL, NULL);
    if (got > 0) {
        move_bytes(to, in, (size_t)got);
    }
    return got;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    size_t filled = 0;
    if (message->msg_name || message->msg_control) {
        return syscall(SYS_sendmsg, fd, message, flags);
    }
    for (size_t part = 0; part < message->msg_iovlen && filled < MOST; part++) {
        const struct iovec *from = &message->msg_iov[part];
        size_t count = from->iov_len < MOST - filled ? from->iov_len : MOST - filled;
        move_bytes(out + filled, from->iov_base, count);
        filled += count;
    }
    return syscall(SYS_sendto, fd, out, filled, flags, NULL, 0);
}
