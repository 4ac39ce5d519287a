/* What the scenarios share: which run it is, and faults in one run of a handler.
 *
 * A fault is a pure function: the compiler does not look inside, so what it writes is neither logged nor undone, as
 * what a processor does wrongly.
 */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <sei.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The compiler neither inlines it nor reasons about what it writes. */
#define FAULT SEI_LOCAL __attribute__((noipa))

static int runs;

/* 1 in the first run of the first handler, 2 in its second one, and so on. Called once per run. */
FAULT static int this_run(void) { return ++runs; }

FAULT static void flip(void *p) { *(unsigned char *)p ^= 1; }

FAULT static void set_bytes(void *p, int byte, size_t n) { memset(p, byte, n); }

struct scenario {
    const char *name;
    void (*run)(void);
};

static int run_scenario(const struct scenario *scenarios, size_t count, int argc, char **argv) {
    for (size_t i = 0; i < count; i++) {
        if (argc == 2 && strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            fflush(stdout);
            return 0;
        }
    }
    fprintf(stderr, "which scenario? %s is none\n", argc == 2 ? argv[1] : "");
    return 2;
}

#define SCENARIOS(...)                                                                  \
    int main(int argc, char **argv) {                                                   \
        static const struct scenario scenarios[] = {__VA_ARGS__};                       \
        return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv); \
    }

/* A handler without a message around one statement. */
#define HANDLER(...)      \
    do {                  \
        SEI_BEGIN_NM() {  \
            __VA_ARGS__   \
        }                 \
        SEI_END();        \
    } while (0)

#endif
