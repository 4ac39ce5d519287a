/* A core that always computes one operation wrongly: both runs on it agree, and only another core finds it out. */
#include "scenario.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#define EVERY 50

/* Two cores that this process may run on, the second one of which is wrong. */
static int good = -1, wrong = -1;

static void permit(int first, int second) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(first, &cores);
    CPU_SET(second, &cores);
    assert(sched_setaffinity(0, sizeof cores, &cores) == 0);
}

static void find_cores(void) {
    cpu_set_t all;
    assert(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int core = 0; core < CPU_SETSIZE && wrong < 0; core++) {
        if (CPU_ISSET(core, &all)) {
            *(good < 0 ? &good : &wrong) = core;
        }
    }
}

/* What the wrong core does is asked of the kernel, as a fault is there or not: no code of the library knows of it. */
FAULT static long multiply(long a, long b) { return sched_getcpu() == wrong ? a * b + 1 : a * b; }

static long product, wrong_answers;

static void handlers(int count) {
    for (int i = 0; i < count; i++) {
        HANDLER(product = multiply(i, 3););
        wrong_answers += product != i * 3L;
    }
}

/* The second run of the handler EVERY is the first one that another core makes. */
static void wrong_core(void) {
    find_cores();
    sei_rotate(EVERY);
    permit(wrong, wrong);
    handlers(EVERY - 1);
    permit(good, wrong);
    printf("%ld of %d wrong\n", wrong_answers, EVERY - 1);
    fflush(stdout);
    handlers(1);
    printf("not found\n");
}

static void wrong_core_without_rotation(void) {
    find_cores();
    permit(wrong, wrong);
    handlers(20 * EVERY);
    printf("%ld of %d wrong\n", wrong_answers, 20 * EVERY);
}

/* Right cores: nothing is detected, second runs change the core, and afterwards the thread may run where it might. */
static void right_cores(void) {
    find_cores();
    int right = wrong;
    wrong = -1;
    permit(good, right);
    sei_rotate(10);
    handlers(1000);
    struct sei_counters counters;
    sei_counters_read(&counters);
    cpu_set_t now;
    assert(sched_getaffinity(0, sizeof now, &now) == 0);
    sei_rotate(0);
    handlers(100);
    struct sei_counters later;
    sei_counters_read(&later);
    printf("%lu rotations, %d cores, then %lu; %ld wrong\n", (unsigned long)counters.rotations, CPU_COUNT(&now),
           (unsigned long)(later.rotations - counters.rotations), wrong_answers);
}

/* It runs on, and says so once. */
static void one_core(void) {
    find_cores();
    wrong = -1;
    permit(good, good);
    int ends[2];
    assert(pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && dup2(ends[1], 2) == 2);
    sei_rotate(1);
    handlers(100);
    static char said[4096];
    ssize_t n = read(ends[0], said, sizeof said - 1);
    int lines = 0;
    for (ssize_t i = 0; i < n; i++) {
        lines += said[i] == '\n';
    }
    struct sei_counters counters;
    sei_counters_read(&counters);
    printf("%d line, one core only %d, %lu handlers, %lu rotations\n", lines, strstr(said, "one core only") != NULL,
           (unsigned long)counters.handlers, (unsigned long)counters.rotations);
}

SCENARIOS({"wrong_core", wrong_core}, {"wrong_core_without_rotation", wrong_core_without_rotation},
          {"right_cores", right_cores}, {"one_core", one_core})
