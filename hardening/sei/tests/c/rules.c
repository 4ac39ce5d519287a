/* Input, output, and calls that leave memory: what is given again, what is deferred, and what is compared. */
#include "scenario.h"

#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char message[] = "increment";
static const size_t length = sizeof message - 1;
static int counter;
static char reply[64];

static void corrupt_input_is_discarded(void) {
    uint32_t crc = sei_crc(0, message, length);
    flip(message);
    if (SEI_BEGIN(message, length, crc)) {
        counter++;
        SEI_END();
    } else {
        struct sei_counters counters;
        sei_counters_read(&counters);
        printf("discarded %lu\n", (unsigned long)counters.discarded);
        return;
    }
    printf("counter=%d\n", counter);
}

static void input_changes_in_e2(void) {
    if (SEI_BEGIN(message, length, sei_crc(0, message, length))) {
        if (this_run() == 2) flip(message);
        counter++;
        SEI_END();
    } else {
        return;
    }
    printf("counter=%d\n", counter);
}

/* The handler edits its message, as memcached does when it makes words of a line. */
static void rw_input_is_edited(void) {
    if (SEI_BEGIN_RW(message, length, sei_crc(0, message, length))) {
        message[3] = '\0';
        counter += (int)strlen(message);
        SEI_END();
    } else {
        return;
    }
    printf("counter=%d\n", counter);
}

static void rw_input(void) {
    if (SEI_BEGIN_RW(message, length, sei_crc(0, message, length))) {
        if (this_run() == 1) flip(message + 5);
        message[3] = '\0';
        counter += (int)strlen(message);
        SEI_END();
    } else {
        return;
    }
    printf("counter=%d\n", counter);
}

/* A reply whose bytes the library did not see being written, such as those that a system call wrote. */
static void replied(int faulty_run) {
    if (SEI_BEGIN(message, length, sei_crc(0, message, length))) {
        int run = this_run();
        set_bytes(reply, 'a', 10);
        sei_output_append(reply, 10);
        if (run == faulty_run) flip(reply + 9);
        sei_output_done();
        SEI_END();
    } else {
        return;
    }
    uint32_t crc = sei_crc_pop();
    int of_this_request = crc == sei_crc(sei_crc(0, message, length), reply, 10);
    printf("%.10s %s\n", reply, of_this_request ? "answers the request" : "answers another request");
}

static void a_reply(void) { replied(0); }
static void last_mile_output(void) { replied(2); }

static void replies_without_binding(void) {
    sei_bind_replies(0);
    replied(0);
}

static void two_replies(void) {
    HANDLER(
        strcpy(reply, "onetwo");
        sei_output_append(reply, 3);
        sei_output_done();
        sei_output_append(reply + 3, 1);
        sei_output_append(reply + 4, 2);
        sei_output_done();
    );
    uint32_t one = sei_crc_pop();
    printf("%d %d\n", one == sei_crc(0, "one", 3), sei_crc_pop() == sei_crc(0, "two", 3));
}

static void stored_crc(void) {
    uint32_t stored = sei_crc(0, "value of an item", 16);
    HANDLER(
        strcpy(reply, "VALUE ");
        sei_output_append(reply, 6);
        sei_output_append_crc(stored, 16);
        sei_output_done();
    );
    printf("%d\n", sei_crc_pop() == sei_crc(0, "VALUE value of an item", 22));
}

static void other_reply_in_e2(void) {
    HANDLER(
        int run = this_run();
        sei_output_append(reply, run == 2 ? 5 : 6);
        sei_output_done();
    );
    printf("left\n");
}

static void append_without_done(void) {
    HANDLER(sei_output_append(reply, 5););
    printf("left\n");
}

static void done_without_append(void) {
    HANDLER(sei_output_done(););
    printf("left\n");
}

__attribute__((noinline)) static void append_local(void) {
    char at[8];
    set_bytes(at, 'x', sizeof at);
    sei_output_append(at, 1);
}

static void reply_on_dead_stack(void) {
    HANDLER(append_local(); sei_output_done(););
    printf("left\n");
}

/* A fault led out of the first run, to the code behind the handler. */
static void jump_out_of_e1(void) { printf("crc %u\n", sei_crc_pop()); }

static void replay_malloc(void) {
    static int *block;
    HANDLER(block = malloc(100); *block = 5;);
    printf("%d\n", *block);
}

static void replay_calloc_and_realloc(void) {
    static char *block;
    HANDLER(block = calloc(1, 10); strcpy(block, "text"); block = realloc(block, 1000); strcat(block, "!"););
    printf("%s\n", block);
}

static void replay_time(void) {
    static struct timespec now;
    HANDLER(clock_gettime(CLOCK_MONOTONIC, &now););
    printf("%d\n", now.tv_sec > 0);
}

static void replay_random(void) {
    static long one, two;
    HANDLER(one = random(); two = rand(););
    printf("%d\n", one != two);
}

static void replay_recv(void) {
    static char bytes[8];
    static ssize_t got;
    int pair[2];
    assert(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    assert(send(pair[0], "one", 3, 0) == 3 && send(pair[0], "two!", 4, 0) == 4);
    HANDLER(got = recv(pair[1], bytes, sizeof bytes, 0););
    printf("%zd %s", got, bytes);
    got = recv(pair[1], bytes, sizeof bytes, 0);
    printf(" %zd %s\n", got, bytes);
}

static void use_after_undo(void) {
    static int *block;
    static int value;
    block = malloc(16);
    *block = 77;
    HANDLER(value = *block; free(block); block = NULL;);
    printf("%d\n", value);
}

static int out[2];

static void print_what_left(const struct sei_report *report) {
    int waiting = 0;
    (void)report;
    ioctl(out[0], FIONREAD, &waiting);
    printf("bytes left: %d\n", waiting);
    fflush(stdout);
}

static void nothing_leaves_before_v(void) {
    assert(pipe(out) == 0);
    sei_on_detect(print_what_left);
    HANDLER(
        int run = this_run();
        char text[2];
        text[0] = run == 1 ? 'w' : 'r';
        text[1] = '\n';
        write(out[1], text, 2);
    );
    print_what_left(NULL);
}

static void deferred_calls_happen_once(void) {
    assert(pipe(out) == 0);
    HANDLER(write(out[1], "hello\n", 6); fprintf(stdout, "printed %d\n", 5););
    print_what_left(NULL);
}

static void ignored_words(void) {
    static int statistics[4];
    HANDLER(sei_ignore_addr(statistics, sizeof statistics); counter++; statistics[1] = this_run(););
    printf("counter=%d\n", counter);
}

static void refused_call(void) {
    HANDLER(if (fork() == 0) counter++;);
    printf("forked\n");
}

static void own_check(void) {
    HANDLER(if (counter != 1) sei_detected(); counter++;);
    printf("counter=%d\n", counter);
}

/* As the C library's does where it has to find a new heap. */
static int disturbs_errno;
void *__libc_malloc(size_t bytes);
void *malloc(size_t bytes) {
    void *block = __libc_malloc(bytes);
    if (disturbs_errno) errno = ENOMEM;
    return block;
}

static void allocation_changes_errno(void) {
    disturbs_errno = 1;
    HANDLER(errno = 0; char *block = malloc(100); counter += block != NULL && errno == 0; free(block););
    printf("counter=%d\n", counter);
}

static void detection_flushes_nothing(void) {
    printf("buffered");
    HANDLER(if (this_run() == 2) counter++;);
}

SCENARIOS({"corrupt_input_is_discarded", corrupt_input_is_discarded}, {"input_changes_in_e2", input_changes_in_e2},
          {"rw_input_is_edited", rw_input_is_edited}, {"rw_input", rw_input}, {"a_reply", a_reply},
          {"last_mile_output", last_mile_output}, {"replies_without_binding", replies_without_binding},
          {"two_replies", two_replies}, {"stored_crc", stored_crc}, {"other_reply_in_e2", other_reply_in_e2},
          {"append_without_done", append_without_done}, {"done_without_append", done_without_append},
          {"reply_on_dead_stack", reply_on_dead_stack}, {"jump_out_of_e1", jump_out_of_e1},
          {"replay_malloc", replay_malloc}, {"replay_calloc_and_realloc", replay_calloc_and_realloc},
          {"replay_time", replay_time}, {"replay_random", replay_random},
          {"replay_recv", replay_recv}, {"use_after_undo", use_after_undo},
          {"nothing_leaves_before_v", nothing_leaves_before_v},
          {"deferred_calls_happen_once", deferred_calls_happen_once}, {"ignored_words", ignored_words},
          {"refused_call", refused_call}, {"own_check", own_check},
          {"allocation_changes_errno", allocation_changes_errno},
          {"detection_flushes_nothing", detection_flushes_nothing})
