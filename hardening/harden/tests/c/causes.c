/* One of each cause that keeps a handler from being hardened: `WANT` names what the check must say of its line. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "sei.h"

#ifndef LIMIT
#error "the Makefile gives it"
#endif

/* In the other file. */
void store(long by);
long safe_store(long by) SEI_SAFE;
long foreign_local(long by) SEI_LOCAL;

static long counter;
static volatile int stopping;
static void (*behind)(long);
static struct { unsigned busy : (1); unsigned level : 4; int plain; } flags;

static void plain(long by) { counter += by; }

/* Nothing in it is a cause: the compiler redirects what it calls, or it is written in line. */
static long allowed(const char *text) {
    char copy[40];
    memcpy(copy, text, 4);
    snprintf(copy, sizeof copy, "%s", text);
    char *kept = malloc(strlen(copy) + 1);
    free(kept);
    return __builtin_bswap32((unsigned)counter) + __builtin_popcount(7) + flags.plain;
}

SEI_LOCAL static void wrong_local(void) { counter++; } /* WANT `wrong_local` is declared so and writes */

static long variadic(const char *format, ...) {
    va_list list;
    va_start(list, format); /* WANT `__builtin_va_start` is called */
    long first = va_arg(list, long);
    va_end(list); /* WANT `__builtin_va_end` is called */
    return first;
}

static void deeper(long by) {
    double loads[3];
    getloadavg(loads, 3); /* WANT `getloadavg` is called */
    char array[by]; /* WANT `__builtin_alloca_with_align` is called */
    memset(array, 0, (size_t)by);
    if (__builtin_add_overflow(by, 1, &by)) {
        counter = 0;
    }
}

static void work(long by) {
    if (stopping) { /* WANT a volatile variable is used */
        return;
    }
    behind(by); /* WANT a call goes through the pointer `behind` */
    __asm__ volatile("" ::: "memory"); /* WANT there is inline assembly */
    __atomic_fetch_add(&counter, by, __ATOMIC_RELAXED); /* WANT `__atomic_fetch_add_8` is called */
    flags.busy = 1; /* WANT bit-field busy */
    deeper(by);
    counter += variadic("%ld", by) + allowed("text");
    store(by); /* WANT functions of src/causes_store.c are called */
    safe_store(by);
    foreign_local(by);
    wrong_local();
    plain(by);
}

/* Runs beside handlers. */
static void *crawl(void *unused) {
    plain(1);
    return unused;
}

/* Not reached from a handler. */
static void report(void) {
    struct sysinfo info;
    sysinfo(&info);
    printf("%ld %d\n", counter, stopping);
}

int main(int count, char **words) {
    pthread_t thread;
    pthread_create(&thread, NULL, crawl, words);
    char message[] = "m";
    if (SEI_BEGIN(message, 1, sei_crc(0, message, 1))) {
        work(count);
        int sum;
        if (__builtin_mul_overflow(count, 2, &sum)) { /* WANT `__builtin_mul_overflow` stands in a handler */
            counter = 1;
        }
        double loads[3];
        getloadavg(loads, 3); /* WANT `getloadavg` is called */
        SEI_END();
    }
    report();
    return 0;
}
