/* One handler replies to several connections, each of which has its own context. */
#include "scenario.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>

static char message[] = "say hello";
static const size_t length = sizeof message - 1;
static char reply[64];
static sei_context *one, *two;

static int is_next(sei_context *connection, uint32_t crc) {
    sei_shift(connection);
    return sei_crc_pop() == crc;
}

/* A reply to who asked, and what the others are told: sent in another order than the handler made them. */
static void several_replies(void) {
    uint32_t request = sei_crc(0, message, length);
    one = sei_context_new(), two = sei_context_new();
    sei_shift(one);
    for (int i = 0; i < 3; i++) {
        if (SEI_BEGIN(message, length, request)) {
            strcpy(reply, "said;hello;again");
            sei_output_append(reply, 4);
            sei_output_done();
            sei_output_to(two);
            sei_output_append(reply + 5, 5);
            sei_output_done();
            sei_output_append(reply + 11, 2);
            sei_output_append(reply + 13, 3);
            sei_output_done();
            sei_output_to(NULL);
            sei_output_append(reply, 2);
            sei_output_done();
            sei_output_to(one);
            sei_output_append(reply, 3);
            sei_output_done();
            SEI_END();
        } else {
            return;
        }
    }
    uint32_t hello = sei_crc(0, "hello", 5), again = sei_crc(0, "again", 5);
    int right = 0;
    for (int i = 0; i < 3; i++) {
        right += is_next(two, hello);
        right += is_next(two, again);
    }
    for (int i = 0; i < 3; i++) {
        right += is_next(one, sei_crc(request, "said", 4));
        right += is_next(one, sei_crc(request, "sa", 2));
        right += is_next(one, sei_crc(request, "sai", 3));
    }
    sei_context_free(one), sei_context_free(two);
    sei_shift(NULL);
    printf("%d of 15 right\n", right);
}

/* Connections that are opened and closed in handlers, before any reply has left: the limit of CRCs that wait is 65,536,
 * and each context would keep hundreds of bytes. */
static void closed_before_the_reply(void) {
    size_t before = 0;
    for (int i = 0; i < 70000; i++) {
        HANDLER(
            one = sei_context_new();
            sei_output_to(one);
            sei_output_append(reply, 10);
            sei_output_done();
        );
        HANDLER(
            sei_output_to(one);
            sei_output_append(reply, 10);
            sei_output_done();
            sei_context_free(one);
        );
        before = i == 1000 ? mallinfo2().uordblks : before;
    }
    printf("grown by %d kB\n", (int)(mallinfo2().uordblks - before) / 1024);
}

/* The connection that the thread works on is closed by its own handler. */
static void closed_by_itself(void) {
    one = sei_context_new();
    sei_shift(one);
    HANDLER(sei_output_append(reply, 3); sei_output_done(); sei_context_free(one););
    HANDLER(sei_output_append(reply, 4); sei_output_done(););
    printf("%d\n", sei_crc_pop() == sei_crc(0, reply, 4));
}

static void other_connection_in_e2(void) {
    one = sei_context_new(), two = sei_context_new();
    HANDLER(
        sei_output_to(this_run() == 2 ? two : one);
        sei_output_append(reply, 10);
        sei_output_done();
    );
    printf("left\n");
}

static void unfinished_reply(void) {
    one = sei_context_new();
    HANDLER(
        sei_output_append(reply, 10);
        sei_output_to(one);
        sei_output_append(reply, 10);
        sei_output_done();
    );
    printf("left\n");
}

/* One thread's handlers reply to the connection of another thread. */
enum { REPLIES = 20000 };
static uint64_t made;

static void *send_all(void *unused) {
    int right = 0;
    sei_shift(one);
    for (uint64_t sent = 0; sent < REPLIES;) {
        if (__atomic_load_n(&made, __ATOMIC_ACQUIRE) > sent && sei_barrier()) {
            right += sei_crc_pop() == sei_crc(0, &sent, sizeof sent);
            sent++;
        } else {
            sched_yield();
        }
    }
    sei_shift(NULL);
    printf("%d right\n", right);
    return unused;
}

static void to_another_thread(void) {
    static uint64_t number;
    pthread_t sender;
    one = sei_context_new();
    pthread_create(&sender, NULL, send_all, NULL);
    for (uint64_t i = 0; i < REPLIES; i++) {
        HANDLER(number = i; sei_output_to(one); sei_output_append(&number, sizeof number); sei_output_done(););
        __atomic_store_n(&made, i + 1, __ATOMIC_RELEASE);
    }
    pthread_join(sender, NULL);
}

SCENARIOS({"several_replies", several_replies}, {"closed_before_the_reply", closed_before_the_reply},
          {"closed_by_itself", closed_by_itself}, {"other_connection_in_e2", other_connection_in_e2},
          {"unfinished_reply", unfinished_reply}, {"to_another_thread", to_another_thread})
