/* Named counters, hardened: counter.c with the changes that docs/sei.md explains. Each reply ends with its CRC.
 *
 * Each line on standard input is a request, each line on standard output a reply:
 *
 *     add NAME N    adds N to the counter, and replies with its new value
 *     get NAME      replies with its value, or with "none"
 */
#include <sei.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_BYTES 64

struct counter {
    struct counter *next;
    long value;
    char name[];
};

static struct counter *counters;

static struct counter *find(const char *name) {
    struct counter *counter = counters;
    while (counter && strcmp(counter->name, name) != 0) {
        counter = counter->next;
    }
    return counter;
}

static struct counter *insert(const char *name) {
    struct counter *counter = malloc(sizeof *counter + strlen(name) + 1);
    if (counter) {
        strcpy(counter->name, name);
        counter->value = 0;
        counter->next = counters;
        counters = counter;
    }
    return counter;
}

/* Makes the reply to one request, and returns its length. */
static int answer(const char *request, char *reply) {
    char name[REPLY_BYTES];
    const char *words = request + 4;
    size_t length = strcspn(words, " ");
    if (length == 0 || length >= sizeof name || (strncmp(request, "add ", 4) && strncmp(request, "get ", 4))) {
        return snprintf(reply, REPLY_BYTES, "error: use add NAME N, or get NAME\n");
    }
    memcpy(name, words, length);
    name[length] = '\0';
    struct counter *counter = find(name);
    if (request[0] == 'a') {
        if (!counter && !(counter = insert(name))) {
            return snprintf(reply, REPLY_BYTES, "error: out of memory\n");
        }
        counter->value += strtol(words + length, NULL, 10);
    }
    return counter ? snprintf(reply, REPLY_BYTES, "%ld\n", counter->value) : snprintf(reply, REPLY_BYTES, "none\n");
}

int main(void) {
    static char request[1024], reply[REPLY_BYTES];
    while (fgets(request, sizeof request, stdin)) {
        request[strcspn(request, "\n")] = '\0';
        size_t request_length = strlen(request);
        int length = 0;
        if (SEI_BEGIN(request, request_length, sei_crc(0, request, request_length))) {
            length = answer(request, reply);
            sei_output_append(reply, (size_t)length);
            sei_output_done();
            SEI_END();
        } else {
            continue;
        }
        fwrite(reply, 1, (size_t)length, stdout);
        printf("@%08x\n", sei_crc_pop());
        fflush(stdout);
    }
    return 0;
}
