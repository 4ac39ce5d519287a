/* Sending to readers that are slow, that read nothing, or that are gone. */
#include "scenario.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection: [0] is the program's end, which does not wait. */
static void connected(int ends[2], int family) {
    if (family == AF_UNIX) {
        assert(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    } else if (family == AF_INET) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t length = sizeof address;
        int listening = socket(AF_INET, SOCK_STREAM, 0);
        assert(bind(listening, (void *)&address, length) == 0 && listen(listening, 1) == 0);
        assert(getsockname(listening, (void *)&address, &length) == 0);
        ends[1] = socket(AF_INET, SOCK_STREAM, 0);
        assert(connect(ends[1], (void *)&address, length) == 0);
        ends[0] = accept(listening, NULL, NULL);
        assert(ends[0] >= 0);
        close(listening);
    } else {
        int pair[2];
        assert(pipe(pair) == 0);
        ends[0] = pair[1], ends[1] = pair[0];
    }
    assert(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
}

#define MOST 200000
static char text[1000], got[1 << 16];
static ssize_t sent_now;
static int error;

/* What is told to be sent arrives, and nothing else: to the reader that reads nothing until the end, too. */
static void one_reads_nothing(int family) {
    int silent[2], other[2];
    connected(silent, family);
    connected(other, family);
    long sent = 0, chats = 0, received = 0;
    memset(text, 'x', sizeof text);
    do {
        HANDLER(sent_now = write(silent[0], text, sizeof text); error = errno; write(other[0], "chat", 4););
        sent += sent_now > 0 ? sent_now : 0;
        chats += read(other[1], got, 4) == 4;
    } while (sent_now > 0 && chats < MOST);
    int is_full = sent_now == -1 && error == EAGAIN;
    for (int i = 0; i < 100; i++) {
        HANDLER(sent_now = write(silent[0], text, sizeof text); error = errno; write(other[0], "chat", 4););
        sent += sent_now > 0 ? sent_now : 0;
        chats += read(other[1], got, 4) == 4;
    }
    close(silent[0]);
    for (ssize_t n; (n = read(silent[1], got, sizeof got)) > 0;) {
        received += n;
    }
    printf("full %d, all arrives %d, others read on %d\n", is_full, sent == received && sent > 0, chats > 100);
}

static void tcp_full(void) { one_reads_nothing(AF_INET); }
static void unix_full(void) { one_reads_nothing(AF_UNIX); }
static void pipe_full(void) { one_reads_nothing(-1); }

/* A hundred clients that read nothing, and little room for them. Each reply goes to them all and to one that reads. */
static void a_hundred_read_nothing(void) {
    enum { SILENT = 100 };
    static int ends[SILENT][2];
    static long sent[SILENT], refused;
    int other[2], chats = 0, equal = 0, small = 4096;
    connected(other, AF_INET);
    for (int i = 0; i < SILENT; i++) {
        connected(ends[i], AF_INET);
        setsockopt(ends[i][0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    }
    for (int round = 0; round < 300; round++) {
        HANDLER(
            for (int i = 0; i < SILENT; i++) {
                sent_now = write(ends[i][0], text, sizeof text);
                sent[i] += sent_now > 0 ? sent_now : 0;
                refused += sent_now < 0;
            }
            write(other[0], "chat", 4);
        );
        chats += read(other[1], got, 4) == 4;
    }
    for (int i = 0; i < SILENT; i++) {
        long received = 0;
        close(ends[i][0]);
        for (ssize_t n; (n = read(ends[i][1], got, sizeof got)) > 0;) {
            received += n;
        }
        equal += received == sent[i] && received > 0;
    }
    printf("chats %d, refused %d, all arrives to %d\n", chats, refused > 0, equal);
}

/* Several replies in one handler are told as much as there is room for all of them. */
static void many_in_one_handler(void) {
    static long sent, refused;
    int ends[2];
    long received = 0;
    connected(ends, AF_INET);
    for (int i = 0; i < 50; i++) {
        HANDLER(
            for (int j = 0; j < 400; j++) {
                sent_now = send(ends[0], text, sizeof text, 0);
                sent += sent_now > 0 ? sent_now : 0;
                refused += sent_now < 0;
            }
        );
    }
    close(ends[0]);
    for (ssize_t n; (n = read(ends[1], got, sizeof got)) > 0;) {
        received += n;
    }
    printf("refused %d, all arrives %d\n", refused > 0, sent == received);
}

/* SIGPIPE would end this program. */
static void reader_is_gone(void) {
    int ends[2], rounds = 0;
    connected(ends, AF_INET);
    close(ends[1]);
    do {
        HANDLER(sent_now = write(ends[0], text, sizeof text); error = errno;);
    } while (sent_now > 0 && rounds++ < MOST);
    printf("told %d\n", sent_now == -1 && error == EPIPE);
}

#define BIG (16 << 20)
static char *big;

static void *reads_all(void *argument) {
    long sum = 0;
    for (ssize_t n; (n = read(*(int *)argument, got, sizeof got)) > 0;) {
        for (ssize_t i = 0; i < n; i++) {
            sum = sum * 31 + got[i];
        }
    }
    return (void *)sum;
}

/* Asks once after each short write, and then waits for the edge: epoll(7) allows it. */
static void edge(int family) {
    static size_t at, piece;
    int ends[2], epoll = epoll_create1(0);
    long wanted = 0;
    connected(ends, family);
    big = malloc(BIG);
    for (int i = 0; i < BIG; i++) {
        big[i] = (char)(i * 7 + i / 1000);
        wanted = wanted * 31 + big[i];
    }
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    assert(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    pthread_t reader;
    pthread_create(&reader, NULL, reads_all, &ends[1]);
    while (at < BIG) {
        if (epoll_wait(epoll, &event, 1, 20000) != 1) {
            printf("nobody says that there is room, at %zu\n", at);
            return;
        }
        do {
            piece = BIG - at < (5 << 20) ? BIG - at : 5 << 20;
            HANDLER(sent_now = write(ends[0], big + at, piece); if (sent_now > 0) at += (size_t)sent_now;);
        } while (at < BIG && sent_now == (ssize_t)piece);
    }
    close(ends[0]);
    void *sum;
    pthread_join(reader, &sum);
    printf("equal %d\n", (long)sum == wanted);
}

static void tcp_edge(void) { edge(AF_INET); }
static void unix_edge(void) { edge(AF_UNIX); }
static void pipe_edge(void) { edge(-1); }

SCENARIOS({"tcp_full", tcp_full}, {"unix_full", unix_full}, {"pipe_full", pipe_full},
          {"a_hundred_read_nothing", a_hundred_read_nothing}, {"many_in_one_handler", many_in_one_handler},
          {"reader_is_gone", reader_is_gone}, {"tcp_edge", tcp_edge}, {"unix_edge", unix_edge},
          {"pipe_edge", pipe_edge})
