/* What happens outside of handlers and beside them: other stacks, and signals. */
#include "scenario.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <ucontext.h>

#define BYTES (1 << 17)
static ucontext_t caller, coroutine;
static char state[64];
static long handled;

__attribute__((noinline)) static void fill(char *to, int n, int first) {
    for (int i = 0; i < n; i++) to[i] = (char)('a' + (first + i) % 26);
}

/* Its frame is the library's at the end of the run. */
__attribute__((noinline)) static void answer(void) {
    char page[2000];
    fill(page, sizeof page, (int)handled);
    memcpy(state, page + sizeof page - 64, 64);
    handled++;
}

static void three_handlers(void) {
    for (int i = 0; i < 3; i++) {
        HANDLER(answer(););
    }
}

static void on_another_stack(char *stack, int is_registered) {
    if (is_registered) sei_stack(stack, BYTES);
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack, coroutine.uc_stack.ss_size = BYTES, coroutine.uc_link = &caller;
    makecontext(&coroutine, three_handlers, 0);
    swapcontext(&caller, &coroutine);
    printf("%ld %.4s\n", handled, state);
}

static void unknown_stack(void) { on_another_stack(malloc(BYTES), 0); }
static void known_stack(void) { on_another_stack(malloc(BYTES), 1); }

/* A stack that is no more: another one has its memory, and nothing else is known. */
static void forgotten_stack(void) {
    char *stack = malloc(BYTES);
    sei_stack(stack, BYTES);
    sei_stack(stack, 0);
    on_another_stack(stack, 0);
}

static void *in_thread(void *argument) { three_handlers(); return argument; }

/* Below the handler's own frame, and above it in the thread's stack, everything is as before. */
static void threads_own_stacks(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);
    three_handlers();
    printf("%ld %.4s\n", handled, state);
}

/* Runs a handler this many bytes further down. */
__attribute__((noinline)) static void deep(long bytes) {
    volatile char page[65536];
    page[0] = 1;
    if (bytes > 0) {
        deep(bytes - (long)sizeof page);
    } else {
        three_handlers();
    }
    page[1] = 1;
}

/* The main thread's stack grows, and a program may allow it more than it had when its first handler ran. */
static void raised_limit(void) {
    struct rlimit limit;
    assert(getrlimit(RLIMIT_STACK, &limit) == 0);
    three_handlers();
    rlim_t wanted = limit.rlim_cur + (16 << 20);
    if (limit.rlim_cur == RLIM_INFINITY || (limit.rlim_max != RLIM_INFINITY && wanted > limit.rlim_max)) {
        wanted = limit.rlim_cur;
    }
    long bytes = wanted > limit.rlim_cur ? (long)limit.rlim_cur + (4 << 20) : 4 << 20;
    limit.rlim_cur = wanted;
    assert(setrlimit(RLIMIT_STACK, &limit) == 0);
    deep(bytes);
    printf("%ld %.4s\n", handled, state);
}

static char *texts[2] = {"before", "after"};
static volatile sig_atomic_t stopping;
static volatile uint32_t small;
static volatile uint64_t wide;
static uint64_t plain;
static char *volatile text = "before";
SEI_READER(is_stopping, stopping)
SEI_READER(small_now, small)
SEI_READER(wide_now, wide)
SEI_READER(text_now, text)

static void on_signal(int number) {
    (void)number;
    stopping = 1, small += 5, wide += 1ull << 40, plain += 1ull << 33, text = texts[1];
}

FAULT static void signal_comes(void) { raise(SIGUSR1); }

static long seen[5];
static const char *seen_text, *seen_by_address;

/* A signal in each run: what the first one read before it is what the second one is given after it. */
static void words_of_a_signal(void) {
    signal(SIGUSR1, on_signal);
    HANDLER(
        seen[0] = is_stopping(), seen[1] = small_now(), seen[2] = (long)wide_now(), seen_text = text_now();
        seen[3] = (long)sei_read_u64(&plain);
        seen_by_address = sei_read_ptr(&texts[0]);
        signal_comes();
        seen[4] = is_stopping() + small_now();
    );
    printf("%ld %ld %ld %ld %ld %s %s\n", seen[0], seen[1], seen[2], seen[3], seen[4], seen_text, seen_by_address);
}

static void plain_word_of_a_signal(void) {
    signal(SIGUSR1, on_signal);
    HANDLER(seen[0] = (long)plain; signal_comes(););
    printf("%ld\n", seen[0]);
}

SCENARIOS({"unknown_stack", unknown_stack}, {"known_stack", known_stack}, {"forgotten_stack", forgotten_stack},
          {"threads_own_stacks", threads_own_stacks}, {"raised_limit", raised_limit},
          {"words_of_a_signal", words_of_a_signal},
          {"plain_word_of_a_signal", plain_word_of_a_signal})
