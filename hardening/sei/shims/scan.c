/* Text that is taken apart, and arrays that are sorted, in handlers. */
#include <sei/shim.h>

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define READ(p) ((const char *)sei_rt_read_at(p))
/* Results of one scanf. */
#define RESULTS 32

/* ---- Words. They end in the text itself, and the place behind them is the program's, or this library's. ---- */

static void set_pointer(char **to, char *value) { memcpy(sei_rt_will_write(to, sizeof *to), &value, sizeof value); }

static void end_here(char *at) { *(char *)sei_rt_will_write(at, 1) = '\0'; }

char *sei_call_strtok_r(char *text, const char *separators, char **place) {
    char *at = text ? text : *(char *const *)sei_rt_read_at(place);
    if (!at) {
        return NULL;
    }
    at += strspn(READ(at), READ(separators));
    size_t length = strcspn(READ(at), READ(separators));
    char *end = at + length;
    if (*READ(end)) {
        end_here(end++);
    }
    set_pointer(place, length ? end : NULL);
    return length ? at : NULL;
}

char *sei_call_strtok(char *text, const char *separators) {
    static __thread char *place;
    return sei_call_strtok_r(text, separators, &place);
}

char *sei_call_strsep(char **place, const char *separators) {
    char *at = *(char *const *)sei_rt_read_at(place);
    if (!at) {
        return NULL;
    }
    char *end = at + strcspn(READ(at), READ(separators));
    bool is_last = !*READ(end);
    if (!is_last) {
        end_here(end++);
    }
    set_pointer(place, is_last ? NULL : end);
    return at;
}

/* ---- scanf: the C library writes to room of its own, and what it has written is copied. ---- */

struct scanned {
    void *to;      /* the program's */
    size_t bytes;  /* of a number; 0: a text, which has an end */
    bool is_counted; /* %n is no result of its own */
};

/* The bytes of a result with this conversion. 0: a text. */
static size_t scanned_bytes(const char *conversion, size_t width, int longs, int shorts) {
    switch (*conversion) {
    case 's':
    case '[':
        return 0;
    case 'c':
        return width ? width : 1;
    case 'p':
        return sizeof(void *);
    case 'a': case 'e': case 'f': case 'g': case 'A': case 'E': case 'F': case 'G':
        return longs == 0 ? sizeof(float) : longs == 1 ? sizeof(double) : sizeof(long double);
    default:
        return longs ? sizeof(long) : shorts == 0 ? sizeof(int) : shorts == 1 ? sizeof(short) : sizeof(char);
    }
}

static const char *end_of_set(const char *at) {
    at += at[1] == '^' ? 2 : 1;
    at += *at == ']';
    return at + strcspn(at, "]");
}

/* What a format asks for; returns how many results it has room for. */
static size_t scanned_of(const char *format, va_list arguments, struct scanned *results) {
    size_t count = 0;
    for (const char *at = format; (at = strchr(at, '%')); at++) {
        int longs = 0, shorts = 0;
        at++;
        bool is_skipped = *at == '*';
        at += is_skipped;
        char *behind;
        size_t width = strtoul(at, &behind, 10);
        for (at = behind; *at && strchr("hlLjztq", *at); at++) {
            shorts += *at == 'h';
            longs += *at == 'h' ? 0 : *at == 'L' || *at == 'q' ? 2 : 1;
        }
        if (*at == '%') {
            continue;
        }
        if (*at == 'm' || *at == '$' || *at == 'S' || *at == 'C' || (longs && strchr("sc[", *at)) || !*at) {
            sei_rt_refuse("sscanf with %m, %1$, or wide characters");
        }
        struct scanned result = {.bytes = scanned_bytes(at, width, longs, shorts), .is_counted = *at == 'n'};
        at = *at == '[' ? end_of_set(at) : at;
        if (!*at) {
            break;
        }
        if (!is_skipped) {
            if (count == RESULTS) {
                sei_rt_refuse("sscanf with more than 32 results");
            }
            result.to = va_arg(arguments, void *);
            results[count++] = result;
        }
    }
    return count;
}

/* A number of characters is never all ones. */
static bool is_untouched(const char *count, size_t bytes) {
    uint64_t ones = UINT64_MAX;
    return memcmp(count, &ones, bytes) == 0;
}

int sei_call_vsscanf(const char *text, const char *format, va_list arguments) {
    struct scanned results[RESULTS];
    const char *from = READ(text);
    size_t count = scanned_of(READ(format), arguments, results), longest = strlen(from) + 1, all = 0;
    /* Each with as much room as the whole text, aligned. */
    size_t each = (longest + sizeof(long double) + 15) & ~(size_t)15;
    char *room = calloc(count ? count : 1, each);
    if (!room) {
        errno = ENOMEM;
        return EOF;
    }
    void *places[RESULTS];
    for (size_t i = 0; i < RESULTS; i++) {
        places[i] = i < count ? room + i * each : room;
        if (i < count && results[i].is_counted) {
            memset(places[i], 0xff, results[i].bytes);
        }
    }
    int found = sscanf(from, READ(format), places[0], places[1], places[2], places[3], places[4], places[5], places[6],
                       places[7], places[8], places[9], places[10], places[11], places[12], places[13], places[14],
                       places[15], places[16], places[17], places[18], places[19], places[20], places[21], places[22],
                       places[23], places[24], places[25], places[26], places[27], places[28], places[29], places[30],
                       places[31]);
    for (size_t i = 0; i < count; i++) {
        const char *got = places[i];
        if (results[i].is_counted ? is_untouched(got, results[i].bytes) : (int)all++ >= found) {
            continue;
        }
        size_t length = results[i].bytes ? results[i].bytes : strlen(got) + 1;
        memcpy(sei_rt_will_write(results[i].to, length), got, length);
    }
    free(room);
    return found;
}

int sei_call_sscanf(const char *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int found = sei_call_vsscanf(text, format, arguments);
    va_end(arguments);
    return found;
}

/* ---- Sorting. The program's comparison runs as a part of its handler: the instrumented copy of it, which is there if
 * the function is declared SEI_COMPARE. The order is the C library's: equal elements stay as they are. ---- */

typedef int (*comparison)(const void *, const void *);
void *_ITM_getTMCloneSafe(void *function);

static void merge(char *into, const char *left, const char *middle, const char *right, size_t size,
                  comparison compare) {
    const char *a = left, *b = middle;
    for (; a < middle || b < right; into += size) {
        bool is_left = b >= right || (a < middle && compare(a, b) <= 0);
        memcpy(into, is_left ? a : b, size);
        *(is_left ? &a : &b) += size;
    }
}

void sei_call_qsort(void *array, size_t count, size_t size, comparison function) {
    if (count < 2 || size == 0) {
        return;
    }
    comparison compare = (comparison)_ITM_getTMCloneSafe((void *)function);
    size_t bytes = count * size;
    /* Given back if the handler begins again while it compares. */
    char *room = _ITM_malloc(2 * bytes);
    if (!room) {
        sei_rt_refuse("qsort without memory for a second array");
    }
    char *from = room, *to = room + bytes;
    memcpy(from, sei_rt_read_at(array), bytes);
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t at = 0; at < count; at += 2 * run) {
            size_t middle = at + run < count ? at + run : count, end = middle + run < count ? middle + run : count;
            merge(to + at * size, from + at * size, from + middle * size, from + end * size, size, compare);
        }
        char *sorted = to;
        to = from, from = sorted;
    }
    memcpy(sei_rt_will_write(array, bytes), from, bytes);
    _ITM_free(room);
}

void *sei_call_bsearch(const void *key, const void *array, size_t count, size_t size, comparison function) {
    comparison compare = (comparison)_ITM_getTMCloneSafe((void *)function);
    const char *begin = array;
    while (count > 0) {
        const char *middle = begin + count / 2 * size;
        int order = compare(key, middle);
        if (order == 0) {
            return (void *)middle;
        }
        if (order > 0) {
            begin = middle + size;
            count -= count / 2 + 1;
        } else {
            count /= 2;
        }
    }
    return NULL;
}
