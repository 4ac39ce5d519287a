/* A key-value server whose handlers run twice: the smallest program with everything that SEI asks of a server.
 *
 *     kv PORT [crc]
 *
 * Clients on 127.0.0.1 speak a part of memcached's text protocol: get, set, delete, incr, and quit. With "crc", each
 * request follows a line "@<CRC of the line> <CRC of the data>", and each reply is followed by "@<CRC>", which
 * continues the CRC of the request: so a client recognises a corrupt reply, and a valid one to another request. Eight
 * hexadecimal digits each, CRC-32C, line ends included.
 *
 * One thread waits for all connections (dispatch), runs one handler per request (handling), and sends (output).
 */
#include <sei.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUCKETS 4096
#define KEY_BYTES 250
#define VALUE_BYTES (1 << 20)
#define LINE_BYTES 2048
#define CONNECTIONS 64
/* "VALUE key flags bytes", "END" and the line ends around a value. */
#define REPLY_BYTES (VALUE_BYTES + KEY_BYTES + 64)
#define INPUT_BYTES (VALUE_BYTES + LINE_BYTES)

/* ---- State, which only handlers write. ---- */

struct item {
    struct item *next;
    char *value; /* with its CR LF */
    size_t length;
    unsigned flags;
    char key[];
};

static struct item *buckets[BUCKETS];

static struct item **find(const char *key) {
    unsigned hash = 2166136261u;
    for (const char *c = key; *c; c++) {
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    }
    struct item **at = &buckets[hash % BUCKETS];
    while (*at && strcmp((*at)->key, key) != 0) {
        at = &(*at)->next;
    }
    return at;
}

static void delete_item(struct item **at) {
    struct item *item = *at;
    *at = item->next;
    free(item->value);
    free(item);
}

/* ---- Handlers. Each makes its reply in the connection's buffer. ---- */

struct connection {
    int fd;
    size_t input_length, output_length, output_sent;
    int is_announced;
    uint32_t line_crc, data_crc;
    char *input, *output;
    sei_context *sei;
};

static int has_crcs;

static void reply_text(struct connection *c, const char *text) {
    strcpy(c->output, text);
    c->output_length = strlen(text);
}

static void do_get(struct connection *c, const char *key) {
    struct item *item = *find(key);
    if (!item) {
        reply_text(c, "END\r\n");
        return;
    }
    int written = snprintf(c->output, KEY_BYTES + 64, "VALUE %s %u %zu\r\n", key, item->flags, item->length - 2);
    size_t head = (size_t)written;
    memcpy(c->output + head, item->value, item->length);
    memcpy(c->output + head + item->length, "END\r\n", 5);
    c->output_length = head + item->length + 5;
}

static void do_set(struct connection *c, const char *key, unsigned flags, const char *data, size_t length) {
    struct item **at = find(key);
    struct item *item = *at;
    char *value = malloc(length);
    if (!item && value) {
        item = malloc(sizeof *item + strlen(key) + 1);
        if (item) {
            strcpy(item->key, key);
            item->next = NULL;
            item->value = NULL;
            *at = item;
        }
    }
    if (!item || !value) {
        free(value);
        reply_text(c, "SERVER_ERROR out of memory\r\n");
        return;
    }
    free(item->value);
    memcpy(value, data, length);
    item->value = value;
    item->length = length;
    item->flags = flags;
    reply_text(c, "STORED\r\n");
}

static void do_delete(struct connection *c, const char *key) {
    struct item **at = find(key);
    if (*at) {
        delete_item(at);
        reply_text(c, "DELETED\r\n");
    } else {
        reply_text(c, "NOT_FOUND\r\n");
    }
}

static void do_incr(struct connection *c, const char *key, unsigned long long by) {
    struct item *item = *find(key);
    if (!item) {
        reply_text(c, "NOT_FOUND\r\n");
        return;
    }
    char *end;
    unsigned long long number = strtoull(item->value, &end, 10);
    if (end == item->value || *end != '\r') {
        reply_text(c, "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
        return;
    }
    char text[32];
    size_t length = (size_t)snprintf(text, sizeof text, "%llu\r\n", number + by);
    char *value = malloc(length);
    if (!value) {
        reply_text(c, "SERVER_ERROR out of memory\r\n");
        return;
    }
    memcpy(value, text, length);
    free(item->value);
    item->value = value;
    item->length = length;
    reply_text(c, text);
}

/* ---- Dispatch. ---- */

struct request {
    enum { GET, SET, DELETE, INCR, QUIT, BAD } kind;
    char key[KEY_BYTES + 1];
    unsigned flags;
    unsigned long long number; /* of data bytes, or to add */
};

/* The words of a line. `line` ends with a zero byte in place of its CR LF. */
static struct request words_of(const char *line) {
    struct request request = {.kind = BAD};
    if (strcmp(line, "quit") == 0) {
        request.kind = QUIT;
    } else if (sscanf(line, "get %250s", request.key) == 1) {
        request.kind = GET;
    } else if (sscanf(line, "set %250s %u %*d %llu", request.key, &request.flags, &request.number) == 3) {
        request.kind = request.number <= VALUE_BYTES - 2 ? SET : BAD;
    } else if (sscanf(line, "delete %250s", request.key) == 1) {
        request.kind = DELETE;
    } else if (sscanf(line, "incr %250s %llu", request.key, &request.number) == 2) {
        request.kind = INCR;
    }
    return request;
}

/* Inside a handler: what the request asks for. `message` is the line, or the data of a set. */
static void handle(struct connection *c, const struct request *request, const char *message, size_t length) {
    switch (request->kind) {
    case GET: do_get(c, request->key); break;
    case SET: do_set(c, request->key, request->flags, message, length); break;
    case DELETE: do_delete(c, request->key); break;
    case INCR: do_incr(c, request->key, request->number); break;
    default: reply_text(c, "ERROR\r\n");
    }
    sei_output_append(c->output, c->output_length);
    sei_output_done();
}

/* One request: `line` has `line_length` bytes and begins the message, its data come behind it. Returns whether the
 * message was sound; a corrupt one has no reply. */
static int run_request(struct connection *c, const struct request *request, const char *line, size_t line_length) {
    const char *message = line;
    size_t length = line_length;
    uint32_t crc = has_crcs ? c->line_crc : sei_crc(0, line, line_length);
    if (request->kind == SET) {
        message = line + line_length;
        length = request->number + 2;
        crc = has_crcs ? c->data_crc : sei_crc(0, message, length);
    }
    if (SEI_BEGIN(message, length, crc)) {
        handle(c, request, message, length);
        SEI_END();
    } else {
        return 0;
    }
    uint32_t reply = sei_crc_pop();
    if (has_crcs) {
        c->output_length += (size_t)sprintf(c->output + c->output_length, "@%08x\r\n", reply);
    }
    return 1;
}

/* Takes the next request off the input. 0: it is not complete; -1: the connection is to end. */
static int next_request(struct connection *c) {
    char *end = memchr(c->input, '\n', c->input_length);
    if (!end) {
        return c->input_length < LINE_BYTES ? 0 : -1;
    }
    size_t line_length = (size_t)(end - c->input) + 1, length = line_length;
    if (has_crcs && c->input[0] == '@') {
        c->is_announced = sscanf(c->input, "@%8x %8x", &c->line_crc, &c->data_crc) == 2;
    } else {
        char line[LINE_BYTES];
        size_t text = line_length - 1;
        text -= text > 0 && c->input[text - 1] == '\r';
        if (text >= sizeof line) {
            return -1;
        }
        memcpy(line, c->input, text);
        line[text] = '\0';
        /* The line decides how long the request is, so its own CRC is compared before a byte of it is believed. */
        int is_sound = !has_crcs || (c->is_announced && sei_crc(0, c->input, line_length) == c->line_crc);
        struct request request = words_of(line);
        if (request.kind == QUIT || (request.kind == SET && !is_sound)) {
            return -1;
        }
        if (request.kind == SET) {
            length += request.number + 2;
            if (c->input_length < length) {
                return 0;
            }
        }
        run_request(c, &request, c->input, line_length);
        c->is_announced = 0;
    }
    memmove(c->input, c->input + length, c->input_length - length);
    c->input_length -= length;
    return 1;
}

/* ---- Output and connections. ---- */

static int send_output(struct connection *c) {
    if (!sei_barrier()) {
        return 1;
    }
    while (c->output_sent < c->output_length) {
        ssize_t sent = send(c->fd, c->output + c->output_sent, c->output_length - c->output_sent, MSG_NOSIGNAL);
        if (sent < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        c->output_sent += (size_t)sent;
    }
    c->output_length = c->output_sent = 0;
    return 1;
}

/* Reads, handles and sends as far as that goes. 0: the connection ends. */
static int serve(struct connection *c) {
    sei_shift(c->sei);
    for (;;) {
        if (c->output_length > 0) {
            if (!send_output(c)) {
                return 0;
            }
            if (c->output_length > 0) {
                return 1;
            }
        }
        int step = c->input_length > 0 ? next_request(c) : 0;
        if (step < 0) {
            return 0;
        }
        if (step > 0) {
            continue;
        }
        ssize_t got = recv(c->fd, c->input + c->input_length, INPUT_BYTES - c->input_length, 0);
        if (got <= 0) {
            return got < 0 && (errno == EAGAIN || errno == EINTR);
        }
        c->input_length += (size_t)got;
    }
}

static int open_connection(struct connection *c, int listener) {
    int on = 1;
    *c = (struct connection){.fd = accept(listener, NULL, NULL)};
    if (c->fd < 0) {
        return 0;
    }
    c->input = malloc(INPUT_BYTES);
    c->output = malloc(REPLY_BYTES);
    if (!c->input || !c->output || fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0) {
        free(c->input), free(c->output), close(c->fd);
        return 0;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->sei = sei_context_new();
    return 1;
}

static void close_connection(struct connection *c) {
    close(c->fd);
    free(c->input), free(c->output);
    sei_context_free(c->sei);
}

static int listen_on(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, CONNECTIONS) != 0) {
        perror("kv: cannot listen on 127.0.0.1");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv) {
    int port = argc >= 2 ? atoi(argv[1]) : 0;
    if (port <= 0 || port > 65535 || argc > 3 || (argc == 3 && strcmp(argv[2], "crc") != 0)) {
        fprintf(stderr, "usage: kv PORT [crc]\n");
        return 2;
    }
    has_crcs = argc == 3;
    signal(SIGPIPE, SIG_IGN);
    static struct connection connections[CONNECTIONS];
    static struct pollfd polled[CONNECTIONS + 1];
    int count = 0;
    polled[0] = (struct pollfd){.fd = listen_on(port), .events = POLLIN};
    for (;;) {
        for (int i = 0; i < count; i++) {
            short events = connections[i].output_length > 0 ? POLLOUT : POLLIN;
            polled[i + 1] = (struct pollfd){.fd = connections[i].fd, .events = events};
        }
        polled[0].events = count < CONNECTIONS ? POLLIN : 0;
        if (poll(polled, (nfds_t)count + 1, -1) < 0) {
            continue;
        }
        for (int i = count - 1; i >= 0; i--) {
            if (polled[i + 1].revents && !serve(&connections[i])) {
                close_connection(&connections[i]);
                connections[i] = connections[--count];
            }
        }
        if (polled[0].revents && open_connection(&connections[count], polled[0].fd)) {
            count++;
        }
    }
}
