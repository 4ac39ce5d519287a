/* Threads: what one sees of another's handler, and when its reply may leave. */
#include "scenario.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static long shared, other;
static atomic_int step;
static atomic_long seen_wrong;

FAULT static void wait_for(int wanted) {
    while (atomic_load(&step) < wanted) {
        sched_yield();
    }
}

/* Steps only go forward: a handler says each twice. */
FAULT static void reached(int now) {
    if (atomic_load(&step) < now) {
        atomic_store(&step, now);
    }
}

static atomic_int has_lock[2];

/* Both threads have been here once. */
FAULT static void reached_both(long me) {
    atomic_store(&has_lock[me], 1);
    while (!atomic_load(&has_lock[1 - me])) {
        sched_yield();
    }
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument) {
    assert(pthread_create(thread, NULL, run, argument) == 0);
}

static void *add_pairs(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        HANDLER(pthread_mutex_lock(&a); shared++; other--; pthread_mutex_unlock(&a););
    }
    return NULL;
}

static void four_threads(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        start(&threads[i], add_pairs, (void *)20000L);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%ld %ld\n", shared, other);
}

/* The writer's first run makes -1, which a fault did; no other thread may see it. */
FAULT static void pause_and_let_read(int run) {
    if (run == 1) {
        reached(1);
        for (int i = 0; i < 2000 && atomic_load(&step) < 2; i++) {
            usleep(100);
        }
    }
}

static void *write_wrongly(void *unused) {
    (void)unused;
    HANDLER(
        int run = this_run();
        pthread_mutex_lock(&a);
        shared = run == 1 ? -1 : 1;
        pthread_mutex_unlock(&a);
        pause_and_let_read(run);
    );
    return NULL;
}

static void print_seen(const struct sei_report *report) {
    (void)report;
    printf("seen wrong: %ld\n", atomic_load(&seen_wrong));
    fflush(stdout);
}

static void unvalidated_state_is_not_read(void) {
    pthread_t writer;
    sei_on_detect(print_seen);
    start(&writer, write_wrongly, NULL);
    wait_for(1);
    if (pthread_mutex_trylock(&a) == 0) {
        if (shared == -1) {
            atomic_fetch_add(&seen_wrong, 1);
        }
        pthread_mutex_unlock(&a);
    }
    reached(2);
    pthread_join(writer, NULL);
    print_seen(NULL);
}

/* A fault jumps over the lock. */
static void section_without_its_lock(void) {
    HANDLER(if (this_run() != 1) pthread_mutex_lock(&a); shared++; pthread_mutex_unlock(&a););
    printf("left\n");
}

static void section_without_its_lock_in_e2(void) {
    HANDLER(if (this_run() != 2) pthread_mutex_lock(&a); shared++; pthread_mutex_unlock(&a););
    printf("left\n");
}

static void *hold_handler(void *unused) {
    (void)unused;
    HANDLER(int run = this_run(); if (run == 1) { reached(1); wait_for(2); } other++;);
    reached(3);
    return NULL;
}

/* A reply waits while another thread is in a handler that has begun before this one's validation. */
static void message_before_the_other_checked(void) {
    pthread_t thread;
    start(&thread, hold_handler, NULL);
    wait_for(1);
    HANDLER(shared++;);
    int before = sei_barrier();
    reached(2);
    pthread_join(thread, NULL);
    printf("%d %d\n", before, sei_barrier());
}

static long of_a, of_b;

static void *opposite(void *argument) {
    long first = (long)argument;
    for (int i = 0; i < 3000; i++) {
        HANDLER(
            pthread_mutex_t *one = first ? &a : &b;
            pthread_mutex_t *two = first ? &b : &a;
            pthread_mutex_lock(one);
            *(first ? &of_a : &of_b) += 1;
            char *block = malloc(40);
            strcpy(block, "kept");
            pthread_mutex_lock(two);
            shared++;
            other += (long)strlen(block);
            free(block);
            pthread_mutex_unlock(two);
            pthread_mutex_unlock(one);
        );
        if (i % 7 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

static void multi_get_in_opposite_orders(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) {
        start(&threads[i], opposite, (void *)(i & 1));
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%ld %ld %ld\n", of_a + of_b, shared, other);
}

/* Each holds one lock before it asks for the other's. */
static void *meet(void *argument) {
    long first = (long)argument;
    HANDLER(
        pthread_mutex_lock(first ? &a : &b);
        reached_both(first);
        pthread_mutex_lock(first ? &b : &a);
        shared++;
        pthread_mutex_unlock(&a);
        pthread_mutex_unlock(&b);
    );
    return NULL;
}

static void opposite_orders_meet(void) {
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) {
        start(&threads[i], meet, (void *)i);
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    printf("%ld\n", shared);
}

static uint64_t statistics;

static void *count(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        HANDLER(sei_add_u64(&statistics, 2); sei_add_u64(&statistics, -1););
    }
    return NULL;
}

static void counters_count_once(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        start(&threads[i], count, (void *)10000L);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%lu\n", (unsigned long)statistics);
}

static uint32_t racy;

static void *spin(void *unused) {
    (void)unused;
    while (atomic_load(&step) == 0) {
        __atomic_fetch_add(&racy, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void racy_words_are_given_again(void) {
    pthread_t thread;
    static uint32_t copy;
    start(&thread, spin, NULL);
    while (__atomic_load_n(&racy, __ATOMIC_RELAXED) == 0) {
        sched_yield();
    }
    for (int i = 0; i < 20000; i++) {
        HANDLER(copy = sei_read_u32(&racy););
    }
    reached(1);
    pthread_join(thread, NULL);
    printf("%d\n", copy > 0);
}

static void *held_by_other(void *unused) {
    (void)unused;
    pthread_mutex_lock(&a);
    reached(1);
    wait_for(2);
    pthread_mutex_unlock(&a);
    reached(3);
    return NULL;
}

/* The lock is free in the second run, and the first did not get it. */
static void replay_trylock(void) {
    static int got = 5;
    pthread_t thread;
    start(&thread, held_by_other, NULL);
    wait_for(1);
    HANDLER(got = pthread_mutex_trylock(&a); if (got == 0) { pthread_mutex_unlock(&a); } reached(2); wait_for(3););
    pthread_join(thread, NULL);
    printf("%d\n", got != 0);
}

static void *one_handler(void *unused) {
    (void)unused;
    HANDLER(sei_add_u64(&statistics, 1););
    return NULL;
}

/* One after the other: a thread that ends gives its number back. */
static void a_thousand_threads_in_turn(void) {
    for (int i = 0; i < 1000; i++) {
        pthread_t thread;
        start(&thread, one_handler, NULL);
        pthread_join(thread, NULL);
    }
    printf("%lu\n", (unsigned long)statistics);
}

static void *one_handler_and_wait(void *unused) {
    one_handler(unused);
    wait_for(1);
    return NULL;
}

static void too_many_threads(void) {
    pthread_t threads[257];
    for (int i = 0; i < 257; i++) {
        start(&threads[i], one_handler_and_wait, NULL);
    }
    while (__atomic_load_n(&statistics, __ATOMIC_RELAXED) < 257) {
        usleep(1000);
    }
    printf("257 threads\n");
}

SCENARIOS({"four_threads", four_threads}, {"unvalidated_state_is_not_read", unvalidated_state_is_not_read},
          {"section_without_its_lock", section_without_its_lock},
          {"section_without_its_lock_in_e2", section_without_its_lock_in_e2},
          {"message_before_the_other_checked", message_before_the_other_checked},
          {"multi_get_in_opposite_orders", multi_get_in_opposite_orders},
          {"opposite_orders_meet", opposite_orders_meet}, {"counters_count_once", counters_count_once},
          {"racy_words_are_given_again", racy_words_are_given_again}, {"replay_trylock", replay_trylock},
          {"a_thousand_threads_in_turn", a_thousand_threads_in_turn}, {"too_many_threads", too_many_threads})
