/* Faults that NSDI'15 describes, each against the check that finds it. */
#include "scenario.h"

static int x = 101, y, z[8];

/* Fig. 1: the last digit of X. */
static void last_digit(int run, int faulty_run) {
    int v = x;
    v = v % 10;
    if (run == faulty_run) {
        v ^= 2;
    }
    x = v;
}

static void fault_free(void) {
    HANDLER(last_digit(this_run(), 0););
    printf("x=%d\n", x);
}

static void fig1_fault_in_e1(void) {
    HANDLER(last_digit(this_run(), 1););
    printf("x=%d\n", x);
}

static void fig1_fault_in_e2(void) {
    HANDLER(last_digit(this_run(), 2););
    printf("x=%d\n", x);
}

static void a_write_is_undone(void) {
    HANDLER(x++;);
    printf("x=%d\n", x);
}

static void extra_write_in_e1(void) {
    HANDLER(if (this_run() == 1) y = 3; x = 7;);
    printf("x=%d y=%d\n", x, y);
}

static void extra_write_in_e2(void) {
    HANDLER(if (this_run() == 2) y = 3; x = 7;);
    printf("x=%d y=%d\n", x, y);
}

static void wrong_address(void) {
    HANDLER(z[this_run() == 2 ? 3 : 2] = 7;);
    printf("z=%d %d\n", z[2], z[3]);
}

/* What R restored is not what was there: the old value in E2's log is not that of E1. */
static void a_wrong_snapshot_is_seen(void) {
    HANDLER(if (this_run() == 2) flip(&x); x = 7;);
    printf("x=%d\n", x);
}

/* Behind E2's last write. */
static void last_mile_of_e2(void) {
    HANDLER(int run = this_run(); x = 7; if (run == 2) flip(&x););
    printf("x=%d\n", x);
}

/* Two writes, of which a fault changes the first, and the second hides it. */
static void intermediate_value(void) {
    HANDLER(int run = this_run(); x = run == 2 ? 8 : 9; x = 7;);
    printf("x=%d\n", x);
}

static void big_range(void) {
    static char block[1000];
    HANDLER(int run = this_run(); memset(block, 5, sizeof block); if (run == 2) flip(block + 999););
    printf("%d\n", block[999]);
}

SCENARIOS({"fault_free", fault_free}, {"fig1_fault_in_e1", fig1_fault_in_e1}, {"fig1_fault_in_e2", fig1_fault_in_e2},
          {"a_write_is_undone", a_write_is_undone}, {"extra_write_in_e1", extra_write_in_e1},
          {"extra_write_in_e2", extra_write_in_e2}, {"wrong_address", wrong_address},
          {"a_wrong_snapshot_is_seen", a_wrong_snapshot_is_seen}, {"last_mile_of_e2", last_mile_of_e2},
          {"intermediate_value", intermediate_value}, {"big_range", big_range})
