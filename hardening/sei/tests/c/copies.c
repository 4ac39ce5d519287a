/* Duplicated state: a hash table in the arena, its heads in a static array, corrupted at rest. */
#include "scenario.h"

struct node {
    struct node *next;
    int key, value;
};

/* On a page of its own, so that nothing else decides when the page is protected. */
static struct __attribute__((aligned(4096))) {
    struct node *heads[16];
    int beside;
} table;

#define heads table.heads

static void put(int key, int value) {
    for (struct node *node = heads[key & 15]; node; node = node->next) {
        if (node->key == key) {
            node->value = value;
            return;
        }
    }
}

static int get(int key) {
    for (struct node *node = heads[key & 15]; node; node = node->next) {
        if (node->key == key) {
            return node->value;
        }
    }
    return -1;
}

static void fill(void) {
    sei_state_add(heads, sizeof heads);
    for (int key = 0; key < 64; key++) {
        struct node *node = sei_state_alloc(sizeof *node);
        *node = (struct node){heads[key & 15], key, key * 3};
        heads[key & 15] = node;
    }
    sei_state_sync();
}

static int value;
static char reply[20];

static void ask(int key) {
    HANDLER(
        value = get(key);
        snprintf(reply, sizeof reply, "%d", value);
        sei_output_append(reply, strlen(reply));
        sei_output_done();
    );
    printf("%s %d\n", reply, sei_crc_pop() == sei_crc(0, reply, strlen(reply)));
}

static void works(void) {
    fill();
    for (int key = 0; key < 64; key++) {
        HANDLER(put(key, get(key) + 1););
    }
    ask(20);
    ask(63);
}

static void flip_at_rest(void) {
    fill();
    heads[4]->value ^= 64;
    ask(heads[4]->key);
}

static void pointer_at_rest(void) {
    fill();
    heads[4]->next = heads[4]->next->next;
    ask(36);
}

static void head_at_rest(void) {
    fill();
    heads[4] = heads[4]->next;
    ask(52);
}

static void text_at_rest(void) {
    char *text = sei_state_alloc(32);
    strcpy(text, "hello world");
    sei_state_sync();
    flip(text + 6);
    HANDLER(value = strcmp(text, "hello world") == 0;);
    printf("%d\n", value);
}

/* Outside of handlers, on a page of the state, and not in the state. */
static void write_beside(void) {
    fill();
    ask(20);
    table.beside = 7;
    ask(63);
    printf("%d\n", table.beside);
}

static int late = 5;

/* A thread that has run handlers learns of a range that is registered then. */
static void registered_late(void) {
    fill();
    ask(20);
    sei_state_add(&late, sizeof late);
    sei_state_sync();
    late ^= 64;
    HANDLER(value = late;);
    printf("%d\n", value);
}

static struct {
    uint64_t served, asked;
} * counters;

/* Handlers count in the state, and later ones reply with what was counted. */
static void counted(void) {
    counters = sei_state_alloc(sizeof *counters);
    sei_state_sync();
    for (int i = 0; i < 3; i++) {
        HANDLER(
            snprintf(reply, sizeof reply, "%lu", counters->served);
            sei_add_u64(&counters->served, 2);
            sei_add_u64(&counters->asked, -1);
            sei_output_append(reply, strlen(reply));
            sei_output_done();
        );
        printf("%s %d ", reply, sei_crc_pop() == sei_crc(0, reply, strlen(reply)));
    }
    HANDLER(value = counters->asked == (uint64_t)-3;);
    printf("%d\n", value);
}

static char *name;

/* The text that a handler prints is what is there, not what it writes afterwards. */
static void renamed(void) {
    name = sei_state_alloc(32);
    strcpy(name, "alice");
    sei_state_sync();
    HANDLER(
        snprintf(reply, sizeof reply, "old %s", name);
        fprintf(stdout, "%.*s, ", 10, name);
        strcpy(name, "robert");
        sei_output_append(reply, strlen(reply));
        sei_output_done();
    );
    printf("%s %d\n", reply, sei_crc_pop() == sei_crc(0, reply, strlen(reply)));
}

static void printed_at_rest(void) {
    name = sei_state_alloc(32);
    strcpy(name, "alice");
    sei_state_sync();
    flip(name);
    HANDLER(
        snprintf(reply, sizeof reply, "%s", name);
        sei_output_append(reply, strlen(reply));
        sei_output_done();
    );
    printf("%s\n", reply);
}

/* Names of arguments, and more of them than the registers have. Counts are writes. */
static void all_arguments(void) {
    static struct { char text[32]; int count; long wide_count; unsigned char small; } *state;
    static char line[200];
    state = sei_state_alloc(sizeof *state);
    strcpy(state->text, "abc");
    sei_state_sync();
    HANDLER(
        snprintf(line, sizeof line, "%d %s%n %5.1f %Lg %c %%%-5s|%*d %s %ld %.2s%hhn %g %s%ln %Lg", 1, state->text,
                 &state->count, 2.5, 3.5L, 'x', state->text, 4, 5, state->text, 6L, state->text, &state->small, 7.5,
                 state->text, &state->wide_count, 8.5L);
        strcpy(state->text, "defg");
    );
    printf("%s %d %d %ld\n", line, state->count, state->small, state->wide_count);
    HANDLER(
        snprintf(line, sizeof line, "%2$s %1$d %2$s %4$.*3$f", 1, state->text, 2, 1.25);
        state->text[0] = 'D';
        value = state->count + (int)state->wide_count;
    );
    printf("%s %s %d\n", line, state->text, value);
}

SCENARIOS({"works", works}, {"flip_at_rest", flip_at_rest}, {"pointer_at_rest", pointer_at_rest},
          {"head_at_rest", head_at_rest}, {"text_at_rest", text_at_rest},
          {"write_beside", write_beside}, {"registered_late", registered_late},
          {"counted", counted}, {"renamed", renamed}, {"printed_at_rest", printed_at_rest},
          {"all_arguments", all_arguments})
