/* Times, chance and the process itself, in handlers. */
#include <sei/shim.h>

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const struct tm *tm_at(const struct tm *from) { return sei_rt_read_at(from); }

/* What a call returned in a structure of the program's. */
#define GIVE(to, value) memcpy(sei_rt_will_write(to, sizeof(value)), &(value), sizeof(value))

/* The C library copies whole structures: what lies between members is anything. Both runs write the same. */
static void give_tm(struct tm *to, struct tm *parts) {
    const size_t end = offsetof(struct tm, tm_isdst) + sizeof parts->tm_isdst;
    memset((char *)parts + end, 0, offsetof(struct tm, tm_gmtoff) - end);
    memcpy(sei_rt_will_write(to, sizeof *parts), parts, sizeof *parts);
}

struct tm *sei_call_localtime_r(const time_t *from, struct tm *to) {
    struct tm parts;
    time_t at = *(const time_t *)sei_rt_read_at(from);
    if (!localtime_r(&at, &parts)) {
        return NULL;
    }
    give_tm(to, &parts);
    return to;
}

struct tm *sei_call_gmtime_r(const time_t *from, struct tm *to) {
    struct tm parts;
    time_t at = *(const time_t *)sei_rt_read_at(from);
    if (!gmtime_r(&at, &parts)) {
        return NULL;
    }
    give_tm(to, &parts);
    return to;
}

/* The C library's own structure is not undone: these have one of this library, per thread. */
struct tm *sei_call_localtime(const time_t *from) {
    static __thread struct tm parts;
    return sei_call_localtime_r(from, &parts);
}

struct tm *sei_call_gmtime(const time_t *from) {
    static __thread struct tm parts;
    return sei_call_gmtime_r(from, &parts);
}

time_t sei_call_mktime(struct tm *parts) {
    struct tm made;
    memcpy(&made, tm_at(parts), sizeof made);
    time_t result = mktime(&made);
    give_tm(parts, &made);
    return result;
}

time_t sei_call_timegm(struct tm *parts) {
    struct tm made;
    memcpy(&made, tm_at(parts), sizeof made);
    time_t result = timegm(&made);
    give_tm(parts, &made);
    return result;
}

size_t sei_call_strftime(char *to, size_t n, const char *format, const struct tm *parts) {
    char beside[512], *text = n <= sizeof beside ? beside : malloc(n);
    size_t length = text ? strftime(text, n, sei_rt_read_at(format), tm_at(parts)) : 0;
    if (length > 0) {
        memcpy(sei_rt_will_write(to, length + 1), text, length + 1);
    } else if (n > 0) {
        *(char *)sei_rt_will_write(to, 1) = '\0';
    }
    if (text != beside) {
        free(text);
    }
    return length;
}

char *sei_call_strptime(const char *text, const char *format, struct tm *parts) {
    struct tm made;
    memcpy(&made, tm_at(parts), sizeof made);
    const char *from = sei_rt_read_at(text), *end = strptime(from, sei_rt_read_at(format), &made);
    give_tm(parts, &made);
    return end ? (char *)text + (end - from) : NULL;
}

char *sei_call_ctime_r(const time_t *from, char *to) {
    char text[26];
    time_t at = *(const time_t *)sei_rt_read_at(from);
    if (!ctime_r(&at, text)) {
        return NULL;
    }
    GIVE(to, text);
    return to;
}

char *sei_call_ctime(const time_t *from) {
    static __thread char text[26];
    return sei_call_ctime_r(from, text);
}

clock_t sei_call_clock(void) {
    return sei_rt_recorded("clock", RECORDED, 0, 0, 0, sei_rt_runs_first() ? clock() : 0);
}

int sei_call_getrusage(__rusage_who_t who, struct rusage *to) {
    struct rusage used;
    memset(&used, 0, sizeof used);
    int result = sei_rt_runs_first() ? getrusage(who, &used) : 0;
    result = (int)sei_rt_recorded("getrusage", RECORDED, (uint64_t)who, POINTER(to), 0, result);
    sei_rt_bytes(&used, 0, sizeof used);
    GIVE(to, used);
    return result;
}

int sei_call_sched_yield(void) { return 0; }

/* ---- Chance. ---- */

void sei_call_srandom(unsigned seed) {
    if (sei_rt_runs_first()) {
        srandom(seed);
    }
    sei_rt_recorded("srandom", TAKEN, seed, 0, 0, 0);
}

void sei_call_srand(unsigned seed) {
    if (sei_rt_runs_first()) {
        srand(seed);
    }
    sei_rt_recorded("srand", TAKEN, seed, 0, 0, 0);
}

ssize_t sei_call_getrandom(void *to, size_t n, unsigned flags) {
    void *at = sei_rt_will_write(to, n);
    ssize_t result = sei_rt_runs_first() ? getrandom(at, n, flags) : 0;
    result = sei_rt_recorded("getrandom", RECORDED, POINTER(to), n, flags, result);
    sei_rt_bytes(to, 0, result > 0 ? (size_t)result : 0);
    return result;
}

int sei_call_getentropy(void *to, size_t n) {
    void *at = sei_rt_will_write(to, n);
    int result = sei_rt_runs_first() ? getentropy(at, n) : 0;
    result = (int)sei_rt_recorded("getentropy", RECORDED, POINTER(to), n, 0, result);
    sei_rt_bytes(to, 0, result == 0 ? n : 0);
    return result;
}

uint32_t sei_call_arc4random(void) {
    return (uint32_t)sei_rt_recorded("arc4random", RECORDED, 0, 0, 0, sei_rt_runs_first() ? arc4random() : 0);
}

uint32_t sei_call_arc4random_uniform(uint32_t bound) {
    int64_t chosen = sei_rt_runs_first() ? arc4random_uniform(bound) : 0;
    return (uint32_t)sei_rt_recorded("arc4random_uniform", RECORDED, bound, 0, 0, chosen);
}

void sei_call_arc4random_buf(void *to, size_t n) {
    void *at = sei_rt_will_write(to, n);
    if (sei_rt_runs_first()) {
        arc4random_buf(at, n);
    }
    sei_rt_recorded("arc4random_buf", RECORDED, POINTER(to), n, 0, 0);
    sei_rt_bytes(to, 0, n);
}
