/* A program whose handler calls a function that sei/wrap.h lacks, with a shim of its own (own_shim.c). */
#include "scenario.h"

#include <stdlib.h>

int sei_call_getloadavg(double *, int) __attribute__((transaction_pure, transaction_wrap(getloadavg)));

static void load(void) {
    static double first[3], loads[3];
    static int count;
    HANDLER(count = getloadavg(loads, 3););
    getloadavg(first, 3);
    printf("%d %d\n", count, loads[0] >= 0 && loads[0] < first[0] + 1000);
}

SCENARIOS({"load", load})
