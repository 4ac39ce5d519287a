/* Error isolation for C programs: a handler runs twice, and nothing leaves the process that differs.
 *
 * A handler is the code between SEI_BEGIN and SEI_END. It is compiled by GCC with -fgnu-tm, which calls this library at
 * every access to memory. The library keeps what the first run (E1) overwrites, puts it back (R), lets the handler run
 * again (E2), and compares both runs (V). A difference ends the process with status 86 before anything has left it.
 * Source: Behrens et al., Scalable Error Isolation for Distributed Systems, NSDI 2015, section 4.
 *
 *     while ((length = receive(message, &crc)) >= 0) {
 *         if (SEI_BEGIN(message, length, crc)) {
 *             size = answer(message, reply);
 *             sei_output_append(reply, size);
 *             sei_output_done();
 *             SEI_END();
 *         } else {
 *             continue;                      // the message is corrupt: discard it
 *         }
 *         send_reply(reply, size, sei_crc_pop());
 *     }
 *
 * How to compile and link a program: docs/sei.md. With SEI_NATIVE defined everything here does nothing, so that the
 * same source is also the program without protection.
 */
#ifndef SEI_H
#define SEI_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Exit status of a process that detected a fault. */
#define SEI_EXIT_DETECTED 86

/* With SEI_STATS: cycles of the processor in each part of an event loop, in the hardened program and in the native one
 * (NSDI'15, Table 5). SEI_BEGIN and SEI_END mark handling by themselves; the program marks the rest. */
enum sei_part { SEI_WAITING, SEI_DISPATCHING, SEI_HANDLING, SEI_SENDING, SEI_PARTS };
#ifdef SEI_STATS
#include <x86intrin.h>
/* Of all threads. The part after SEI_HANDLING is SEI_DISPATCHING. One translation unit has them. */
static uint64_t sei_part_cycles[SEI_PARTS];
static __thread struct {
    enum sei_part part;
    uint64_t since;
} sei_now;
static inline void sei_part(enum sei_part part) {
    uint64_t now = __rdtsc();
    if (sei_now.since) {
        __atomic_fetch_add(&sei_part_cycles[sei_now.part], now - sei_now.since, __ATOMIC_RELAXED);
    }
    sei_now.part = part;
    sei_now.since = now;
}
#else
#define sei_part(part) ((void)0)
#endif

#ifdef SEI_NATIVE
#define SEI_LOCAL
#define SEI_SAFE
#define SEI_COMPARE
#else
/* A function that writes nothing but its own locals and may run twice. The compiler does not look inside. */
#define SEI_LOCAL __attribute__((transaction_pure))
/* A function of another translation unit that handlers call and that is compiled with -fgnu-tm as well. */
#define SEI_SAFE __attribute__((transaction_safe))
/* A function that handlers pass to qsort or bsearch: it runs as a part of the handler. */
#define SEI_COMPARE __attribute__((transaction_callable))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One thread detects a fault. Passed to the function of sei_on_detect. */
struct sei_report {
    const char *reason;  /* what differed, in words */
    const char *phase;   /* E1, R, E2, V or idle */
    unsigned thread;     /* number of the thread in this library, from 0 */
    uint64_t handlers;   /* handlers that this thread has completed */
    uint64_t address;    /* of the word that differs, or 0 */
};

/* What happened in this process since it began; see sei_counters_read. */
struct sei_counters {
    uint64_t handlers;   /* completed */
    uint64_t discarded;  /* messages whose CRC was wrong */
    uint64_t retries;    /* of a handler that found a lock held by another one */
    uint64_t entries;    /* of the log, over all first runs */
    uint64_t waits;      /* calls of sei_barrier that returned 0 */
    uint64_t rotations;  /* second runs on another core than the first (sei_rotate) */
};

/* Output CRCs and barrier snapshot of one connection. */
typedef struct sei_context sei_context;

#ifdef SEI_NATIVE

#define SEI_BEGIN(p, n, crc) ((void)(p), (void)(n), (void)(crc), sei_part(SEI_HANDLING), 1)) { { if (1
#define SEI_BEGIN_RW(p, n, crc) SEI_BEGIN(p, n, crc)
#define SEI_BEGIN_NM() { sei_part(SEI_HANDLING); { if (1)
#define SEI_END() } } sei_part(SEI_DISPATCHING)

static inline uint32_t sei_crc(uint32_t seed, const void *p, size_t n) { return (void)seed, (void)p, (void)n, 0; }
static inline void sei_output_append(const void *p, size_t n) { (void)p, (void)n; }
static inline void sei_output_append_crc(uint32_t crc, size_t n) { (void)crc, (void)n; }
static inline void sei_output_done(void) {}
static inline uint32_t sei_crc_pop(void) { return 0; }
static inline void sei_bind_replies(int bind) { (void)bind; }
static inline int sei_barrier(void) { return 1; }
static inline sei_context *sei_context_new(void) { return NULL; }
static inline void sei_context_free(sei_context *context) { (void)context; }
static inline void sei_shift(sei_context *context) { (void)context; }
static inline void sei_output_to(sei_context *context) { (void)context; }
static inline void sei_ignore_addr(const void *p, size_t n) { (void)p, (void)n; }
static inline void sei_add_u64(uint64_t *p, int64_t d) { __atomic_fetch_add(p, (uint64_t)d, __ATOMIC_RELAXED); }
static inline uint32_t sei_read_u32(const volatile uint32_t *p) { return *p; }
static inline uint64_t sei_read_u64(const volatile uint64_t *p) { return *p; }
static inline void *sei_read_ptr(const volatile void *p) { return *(void *const volatile *)p; }
static inline void sei_stack(const void *begin, size_t bytes) { (void)begin, (void)bytes; }
static inline void *sei_state_alloc(size_t bytes) { return calloc(1, bytes); }
static inline void sei_state_add(void *p, size_t n) { (void)p, (void)n; }
static inline void sei_state_sync(void) {}
static inline void sei_state_copy(void *p, size_t n) { (void)p, (void)n; }
static inline void sei_counters_read(struct sei_counters *to) { *to = (struct sei_counters){0, 0, 0, 0, 0, 0}; }
static inline void sei_rotate(unsigned n) { (void)n; }
static inline void sei_detected(void) { abort(); }
static inline void sei_on_detect(void (*function)(const struct sei_report *)) { (void)function; }

#else

#define SEI_PREPARE(p, n, crc, input) (sei_part(SEI_HANDLING), sei_prepare((p), (n), (crc), (input)))
/* Begins a handler for the message p of n bytes with this CRC. The condition is false when the CRC is wrong: the
 * message is to be discarded. SEI_END ends the handler; the path between both must not be left by return, break or
 * goto. */
#define SEI_BEGIN(p, n, crc) SEI_PREPARE(p, n, crc, SEI_INPUT_STAYS)) { __transaction_atomic { if (sei_enter()
/* The same for a handler that edits its message in place. */
#define SEI_BEGIN_RW(p, n, crc) SEI_PREPARE(p, n, crc, SEI_INPUT_EDITED)) { __transaction_atomic { if (sei_enter()
/* Begins a handler without a message, such as one for a timer or for the rest of a reply. */
#define SEI_BEGIN_NM() { SEI_PREPARE(NULL, 0, 0, SEI_NO_INPUT); __transaction_atomic { if (sei_enter())
#define SEI_END() } } sei_part(SEI_DISPATCHING)

enum { SEI_NO_INPUT = 0, SEI_INPUT_STAYS = 1, SEI_INPUT_EDITED = 2 };
/* Behind the macros above: initialises the handler (phase I). 0: the message's CRC is wrong. */
int sei_prepare(const void *p, size_t n, uint32_t crc, int input);
/* Behind the macros above: 1. A handler that calls nothing instrumented would be compiled to plain code without it. */
int sei_enter(void) SEI_SAFE;

/* A CRC-32C (Castagnoli) over n bytes, continued from seed; seed 0 begins. */
uint32_t sei_crc(uint32_t seed, const void *p, size_t n) SEI_LOCAL;
/* n bytes at p belong to the reply that is being made. They must stay where they are until the handler ends, and must
 * not be locals of a function that has returned by then. */
void sei_output_append(const void *p, size_t n) SEI_LOCAL;
/* n bytes with this CRC-32C (seed 0), which is stored beside them, belong to the reply. They are not read. */
void sei_output_append_crc(uint32_t crc, size_t n) SEI_LOCAL;
/* The reply is complete. A handler may make several. */
void sei_output_done(void) SEI_LOCAL;
/* The CRC of the oldest reply that was not taken yet. Without one the process ends: a handler was left by a fault. */
uint32_t sei_crc_pop(void);
/* 0: the CRC of a reply is that of its bytes alone. Otherwise (as at the start) it continues the CRC of the request, so
 * that a client recognises a valid reply to another request. */
void sei_bind_replies(int bind);

/* 0: do not send yet, a thread that may have shared a critical section with this one has not checked its run. */
int sei_barrier(void);
/* The CRCs and the barrier of one connection. Handlers may call both; NULL is freed as by free. To free it drops the
 * CRCs of replies that were not sent. */
sei_context *sei_context_new(void) SEI_LOCAL;
void sei_context_free(sei_context *context) SEI_LOCAL;
/* This thread goes on with that connection: its CRCs, and its barrier. NULL: the thread's own. Outside of handlers. */
void sei_shift(sei_context *context);
/* In a handler: what is appended from here on is a reply to that connection, whose CRC sei_crc_pop gives where a thread
 * works on it. It does not continue the CRC of the request, which another client has sent. NULL: the connection that
 * the handler began with, as at its begin. The reply before it is complete. */
void sei_output_to(sei_context *context) SEI_LOCAL;

/* What handlers write there is put back after the first run but not compared, to the end of this handler. */
void sei_ignore_addr(const void *p, size_t n) SEI_LOCAL;
/* Adds to a counter that threads share without a lock: compared, and added atomically once both runs agree. */
void sei_add_u64(uint64_t *p, int64_t d) SEI_LOCAL;
/* Reads a word that other threads, or signal handlers, write without a lock; the second run is given what the first one
 * read. sei_read_ptr is given the address of a pointer. A volatile variable: see SEI_READER. */
uint32_t sei_read_u32(const volatile uint32_t *p) SEI_LOCAL;
uint64_t sei_read_u64(const volatile uint64_t *p) SEI_LOCAL;
void *sei_read_ptr(const volatile void *p) SEI_LOCAL;

/* Handlers may begin on this stack, too, as those of coroutines: in any thread, until its memory is another stack's, or
 * until bytes is 0. Threads' own stacks are known. */
void sei_stack(const void *begin, size_t bytes);

/* Duplicated state, in a program that is linked with the library's variant for it (docs/sei.md); otherwise plain
 * memory. Memory of the state, zeroed, which is never freed; NULL if there is no more. */
void *sei_state_alloc(size_t bytes);
/* Static variables that belong to the state: up to 15 ranges. */
void sei_state_add(void *p, size_t n);
/* Code outside of handlers has written to the state, as at the start: its second copy becomes what the first is. */
void sei_state_sync(void);
/* The same for these bytes, which code outside of handlers has written later on, as for a setting. */
void sei_state_copy(void *p, size_t n);

/* Every n-th handler of each thread makes its second run on another of the cores that the thread may run on, and the
 * thread goes on there: so a core that always computes an operation wrongly is found within n handlers. 0, as at the
 * start without the variable SEI_ROTATE: both runs stay together. With one permitted core the process says once that
 * nothing is gained. */
void sei_rotate(unsigned n);

/* A check of the program's own has failed, such as a CRC that it keeps beside its data: the process ends with status
 * 86, and nothing of this handler has left it. */
void sei_detected(void) __attribute__((noreturn)) SEI_LOCAL;

/* Calls this function before the process ends because of a detected fault. It ends all the same. */
void sei_on_detect(void (*function)(const struct sei_report *));
/* Counters of all threads. */
void sei_counters_read(struct sei_counters *to);

#endif

/* Defines a function `name` that handlers call to read the variable `word` of 4 or 8 bytes, which other threads or
 * signal handlers write. In a handler itself GCC accepts no volatile variable, nor its address:
 *
 *     static volatile sig_atomic_t stopping;
 *     SEI_READER(is_stopping, stopping)        // is_stopping() in handlers
 */
#define SEI_READER(name, word)                                                                 \
    SEI_LOCAL static inline __typeof__(((void)0, (word))) name(void) {                         \
        _Static_assert(sizeof(word) == 4 || sizeof(word) == 8, "a word of 4 or 8 bytes");      \
        return (__typeof__(((void)0, (word))))(                                                \
            sizeof(word) == 4 ? (uintptr_t)sei_read_u32((const volatile uint32_t *)&(word))    \
                              : (uintptr_t)sei_read_u64((const volatile uint64_t *)&(word)));  \
    }

#ifdef __cplusplus
}
#endif

#endif
