/* System calls and standard I/O in handlers: recorded in the first run, deferred to the end, or refused. */
#include <sei/shim.h>

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* ---- Recorded: clocks and chance. ---- */

time_t sei_call_time(time_t *to) {
    time_t now = sei_rt_runs_first() ? time(NULL) : 0;
    now = sei_rt_recorded("time", RECORDED, POINTER(to), 0, 0, now);
    if (to) {
        memcpy(sei_rt_will_write(to, sizeof now), &now, sizeof now);
    }
    return now;
}

int sei_call_gettimeofday(struct timeval *to, void *zone) {
    struct timeval now = {0, 0};
    int result = sei_rt_runs_first() ? gettimeofday(&now, NULL) : 0;
    result = (int)sei_rt_recorded("gettimeofday", RECORDED, POINTER(to), POINTER(zone), 0, result);
    sei_rt_bytes(&now, 0, sizeof now);
    memcpy(sei_rt_will_write(to, sizeof now), &now, sizeof now);
    return result;
}

int sei_call_clock_gettime(clockid_t clock, struct timespec *to) {
    struct timespec now = {0, 0};
    int result = sei_rt_runs_first() ? clock_gettime(clock, &now) : 0;
    result = (int)sei_rt_recorded("clock_gettime", RECORDED, (uint64_t)clock, POINTER(to), 0, result);
    sei_rt_bytes(&now, 0, sizeof now);
    memcpy(sei_rt_will_write(to, sizeof now), &now, sizeof now);
    return result;
}

long sei_call_random(void) {
    return (long)sei_rt_recorded("random", RECORDED, 0, 0, 0, sei_rt_runs_first() ? random() : 0);
}

int sei_call_rand(void) {
    return (int)sei_rt_recorded("rand", RECORDED, 0, 0, 0, sei_rt_runs_first() ? rand() : 0);
}

/* ---- Recorded: descriptors. ---- */

int sei_call_socket(int family, int type, int protocol) {
    int result = sei_rt_runs_first() ? socket(family, type, protocol) : 0;
    return (int)sei_rt_recorded("socket", TAKEN, (uint64_t)family, (uint64_t)type, (uint64_t)protocol, result);
}

int sei_call_bind(int fd, const struct sockaddr *address, socklen_t length) {
    int result = sei_rt_runs_first() ? bind(fd, address, length) : 0;
    return (int)sei_rt_recorded("bind", TAKEN, (uint64_t)fd, sei_crc(0, address, length), length, result);
}

int sei_call_connect(int fd, const struct sockaddr *address, socklen_t length) {
    int result = sei_rt_runs_first() ? connect(fd, address, length) : 0;
    return (int)sei_rt_recorded("connect", TAKEN, (uint64_t)fd, sei_crc(0, address, length), length, result);
}

/* The address that a call returns in *address, with its length. */
static void keep_address(struct sockaddr *to, socklen_t *length, socklen_t room, const struct sockaddr_storage *got,
                         socklen_t got_length, size_t skip) {
    struct sockaddr_storage address = *got;
    sei_rt_bytes(&got_length, skip, sizeof got_length);
    sei_rt_bytes(&address, skip + sizeof got_length, sizeof address);
    socklen_t written = got_length < room ? got_length : room;
    if (to) {
        memcpy(sei_rt_will_write(to, written), &address, written);
        memcpy(sei_rt_will_write(length, sizeof got_length), &got_length, sizeof got_length);
    }
}

#define NAMED(name, taken)                                                                            \
    int sei_call_##name(int fd, struct sockaddr *to, socklen_t *length) {                             \
        struct sockaddr_storage got;                                                                  \
        socklen_t got_length = sizeof got;                                                            \
        socklen_t room = length ? *(const socklen_t *)sei_rt_read_at(length) : 0;                     \
        memset(&got, 0, sizeof got);                                                                  \
        int result = sei_rt_runs_first() ? name(fd, (struct sockaddr *)&got, &got_length) : 0;        \
        result = (int)sei_rt_recorded(#name, taken, (uint64_t)fd, POINTER(to), room, result);         \
        if (result >= 0) {                                                                            \
            keep_address(to, length, room, &got, got_length, 0);                                      \
        }                                                                                             \
        return result;                                                                                \
    }

NAMED(accept, TAKEN)
NAMED(getpeername, RECORDED)
NAMED(getsockname, RECORDED)

int sei_call_accept4(int fd, struct sockaddr *to, socklen_t *length, int flags) {
    struct sockaddr_storage got;
    socklen_t got_length = sizeof got;
    socklen_t room = length ? *(const socklen_t *)sei_rt_read_at(length) : 0;
    memset(&got, 0, sizeof got);
    int result = sei_rt_runs_first() ? accept4(fd, (struct sockaddr *)&got, &got_length, flags) : 0;
    result = (int)sei_rt_recorded("accept4", TAKEN, (uint64_t)fd, POINTER(to), (uint64_t)flags, result);
    if (result >= 0) {
        keep_address(to, length, room, &got, got_length, 0);
    }
    return result;
}

int sei_call_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    int result = sei_rt_runs_first() ? fcntl(fd, command, argument) : 0;
    uint64_t counted = command == F_GETFL || command == F_GETFD ? 0 : (uint64_t)argument;
    return (int)sei_rt_recorded("fcntl", TAKEN, (uint64_t)fd, (uint64_t)command, counted, result);
}

ssize_t sei_call_recvfrom(int fd, void *to, size_t n, int flags, struct sockaddr *from, socklen_t *length) {
    struct sockaddr_storage got;
    socklen_t got_length = sizeof got;
    socklen_t room = length ? *(const socklen_t *)sei_rt_read_at(length) : 0;
    memset(&got, 0, sizeof got);
    void *at = sei_rt_will_write(to, n);
    ssize_t result = sei_rt_runs_first() ? recvfrom(fd, at, n, flags, (struct sockaddr *)&got, &got_length) : 0;
    result = sei_rt_recorded("recvfrom", TAKEN, (uint64_t)fd, n, (uint64_t)flags, result);
    size_t bytes = result > 0 ? ((size_t)result < n ? (size_t)result : n) : 0;
    sei_rt_bytes(to, 0, bytes);
    if (result >= 0 && from) {
        keep_address(from, length, room, &got, got_length, bytes);
    }
    return result;
}

ssize_t sei_call_recv(int fd, void *to, size_t n, int flags) {
    return sei_call_recvfrom(fd, to, n, flags, NULL, NULL);
}

ssize_t sei_call_read(int fd, void *to, size_t n) {
    struct stat known;
    if (sei_rt_waits((uint64_t)fd) && fstat(fd, &known) == 0 && S_ISREG(known.st_mode)) {
        sei_shim_settled((uint64_t)fd, "read");
    }
    void *at = sei_rt_will_write(to, n);
    ssize_t result = sei_rt_runs_first() ? read(fd, at, n) : 0;
    result = sei_rt_recorded("read", TAKEN, (uint64_t)fd, n, POINTER(to), result);
    sei_rt_bytes(to, 0, result > 0 ? (size_t)result : 0);
    return result;
}

/* ---- Recorded: what a thread keeps under a key. ---- */

void *sei_call_pthread_getspecific(pthread_key_t key) {
    void *kept = sei_rt_runs_first() ? pthread_getspecific(key) : NULL;
    return (void *)(uintptr_t)sei_rt_recorded("pthread_getspecific", RECORDED, key, 0, 0, (int64_t)POINTER(kept));
}

int sei_call_pthread_setspecific(pthread_key_t key, const void *value) {
    int result = sei_rt_runs_first() ? pthread_setspecific(key, value) : 0;
    return (int)sei_rt_recorded("pthread_setspecific", TAKEN, key, POINTER(value), 0, result);
}

/* ---- Deferred. They report success: what fails later is as a packet that was lost. Sending is in send.c, printing in
 * streams.c. ---- */

static void do_close(uint64_t fd, uint64_t unused, uint64_t unused_too, const uint8_t *bytes, size_t length) {
    (void)unused, (void)unused_too, (void)bytes, (void)length;
    close((int)fd);
}

int sei_call_close(int fd) {
    sei_rt_defer(do_close, (uint64_t)fd, 0, 0, NULL, 0);
    return 0;
}

static void do_signal(uint64_t condition, uint64_t all, uint64_t unused, const uint8_t *bytes, size_t length) {
    (void)unused, (void)bytes, (void)length;
    if (all) {
        pthread_cond_broadcast((pthread_cond_t *)(uintptr_t)condition);
    } else {
        pthread_cond_signal((pthread_cond_t *)(uintptr_t)condition);
    }
}

int sei_call_pthread_cond_signal(pthread_cond_t *condition) {
    sei_rt_defer(do_signal, POINTER(condition), 0, 0, NULL, 0);
    return 0;
}

int sei_call_pthread_cond_broadcast(pthread_cond_t *condition) {
    sei_rt_defer(do_signal, POINTER(condition), 1, 0, NULL, 0);
    return 0;
}

/* ---- Allocation. ---- */

void *sei_call_realloc(void *old, size_t bytes) {
    if (!old) {
        return _ITM_malloc(bytes);
    }
    void *new = _ITM_malloc(bytes);
    if (new) {
        size_t had = malloc_usable_size(old);
        size_t copied = had < bytes ? had : bytes;
        memcpy(sei_rt_will_write(new, copied), sei_rt_read_at(old), copied);
        _ITM_free(old);
    }
    return new;
}

int sei_call_posix_memalign(void **to, size_t alignment, size_t bytes) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment % sizeof(void *) != 0) {
        return EINVAL;
    }
    void *block = sei_rt_memalign(alignment, bytes);
    if (!block) {
        return ENOMEM;
    }
    memcpy(sei_rt_will_write(to, sizeof block), &block, sizeof block);
    return 0;
}

/* ---- Refused. ---- */

int sei_call_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    (void)condition, (void)mutex;
    sei_rt_refuse("pthread_cond_wait");
}

int sei_call_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    (void)condition, (void)mutex, (void)until;
    sei_rt_refuse("pthread_cond_timedwait");
}

int sei_call_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    (void)thread, (void)attributes, (void)run, (void)argument;
    sei_rt_refuse("pthread_create");
}

pid_t sei_call_fork(void) { sei_rt_refuse("fork"); }

_Noreturn void sei_call_exit(int status) {
    (void)status;
    sei_rt_refuse("exit");
}

/* An assertion that fails in one run is a fault, and in both it is an error of the program: neither may go on. */
_Noreturn void sei_call___assert_fail(const char *what, const char *file, unsigned line, const char *function) {
    char text[400];
    snprintf(text, sizeof text, "%s:%u: %s: assertion `%s' failed", file, line, function ? function : "?", what);
    sei_rt_refuse(text);
}

/* ---- The default of the variable SEI_BARRIER: 0 for a program without the checking barrier. ---- */
__attribute__((weak)) const int sei_barrier_default = 1;

/* ---- The block of the running thread (hardening/sei/src/abi.rs). ---- */
__thread void *sei_rt_thread __attribute__((tls_model("initial-exec")));
