/* Named counters: a program without protection, which docs/sei.md hardens step by step.
 *
 * Each line on standard input is a request, each line on standard output a reply:
 *
 *     add NAME N    adds N to the counter, and replies with its new value
 *     get NAME      replies with its value, or with "none"
 */
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
        int length = answer(request, reply);
        fwrite(reply, 1, (size_t)length, stdout);
        fflush(stdout);
    }
    return 0;
}
