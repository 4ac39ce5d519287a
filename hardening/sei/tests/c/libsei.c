/* What is wrong in the public fork of libsei, and must be right here. Each scenario prints what the native program
 * prints. */
#include "scenario.h"

#include <pthread.h>

static unsigned char bytes[64];

static void print_bytes(void) {
    for (int i = 0; i < 32; i++) {
        printf("%02x", bytes[i]);
    }
    printf("\n");
}

static void memset_then_word(void) {
    HANDLER(memset(bytes, 7, 16); ((uint32_t *)bytes)[1] = 0x01020304; bytes[5]++;);
    print_bytes();
}

static void overlapping_sizes(void) {
    for (int i = 0; i < 3; i++) {
        HANDLER(
            uint64_t *words = (uint64_t *)bytes;
            words[0] += 5;
            bytes[3] += 1;
            ((uint16_t *)bytes)[1] += 3;
            words[0] ^= bytes[3];
        );
    }
    print_bytes();
}

static void memcpy_of_nothing(void) {
    static size_t none;
    HANDLER(memcpy(bytes, bytes + 1, none); memset(bytes, 1, none); bytes[1]++;);
    print_bytes();
}

static void overlapping_memmove(void) {
    for (int i = 0; i < 32; i++) {
        bytes[i] = (unsigned char)i;
    }
    static size_t nine = 9;
    HANDLER(memmove(bytes + 2, bytes, nine); memmove(bytes + 12, bytes + 14, nine););
    print_bytes();
}

static void zeroed_calloc(void) {
    static char *blocks[50];
    static int sum;
    for (int i = 0; i < 50; i++) {
        blocks[i] = malloc(200);
        memset(blocks[i], 9, 200);
    }
    for (int i = 0; i < 50; i++) {
        free(blocks[i]);
    }
    for (int round = 0; round < 20; round++) {
        HANDLER(
            char *block = calloc(10, 20);
            for (int i = 0; i < 200; i++) {
                sum += block[i];
            }
            block[7] = 1;
            free(block);
        );
    }
    printf("%d\n", sum);
}

static int sum_of(const int *values, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        sum += values[i];
    }
    return sum;
}

static void fill(int *values, int n, int first) {
    for (int i = 0; i < n; i++) {
        values[i] = first + i;
    }
}

/* A local of a callee whose address escapes: at the end of the run its place is that of all frames of the library. */
static int in_callee(int first) {
    int values[400];
    fill(values, 400, first);
    return sum_of(values, 400);
}

static void local_arrays(void) {
    static int total;
    for (int i = 0; i < 5; i++) {
        int values[16] = {0};
        HANDLER(fill(values, 16, i); values[3] += sum_of(values, 16); total += values[3] + in_callee(i););
        printf("%d ", values[3]);
    }
    printf("%d\n", total);
}

static void lock_again(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int count;
    HANDLER(
        pthread_mutex_lock(&mutex);
        count++;
        pthread_mutex_unlock(&mutex);
        pthread_mutex_lock(&mutex);
        count++;
        pthread_mutex_unlock(&mutex);
        if (pthread_mutex_trylock(&mutex) == 0) {
            count++;
            pthread_mutex_unlock(&mutex);
        }
    );
    printf("%d %d\n", count, pthread_mutex_trylock(&mutex));
}

static void unlock_of_a_free_lock(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    HANDLER(pthread_mutex_unlock(&mutex););
    printf("left\n");
}

static void floating_point(void) {
    static float f = 1.5f;
    static double d = 2.5;
    static long double e = 3.5L;
    static struct {
        double a, b, c, d, e, f, g, h;
    } many, more = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int i = 0; i < 4; i++) {
        HANDLER(f = f * 1.1f; d = d / 1.3; e = e * e - 1; many = more; more.c += many.h;);
    }
    printf("%a %a %La %g %g\n", (double)f, d, e, many.c, more.c);
}

SEI_SAFE static int twice(int v) { return 2 * v; }
static int (*function)(int) SEI_SAFE = twice;

static void function_pointer(void) {
    static int result = 3;
    HANDLER(result = function(result););
    printf("%d\n", result);
}

static void empty_handlers(void) {
    for (int i = 0; i < 1000; i++) {
        SEI_BEGIN_NM() {}
        SEI_END();
    }
    printf("1000\n");
}

static void text_functions(void) {
    static char text[300];
    static long number;
    static char *end;
    HANDLER(
        strcpy(text, "12345 rest");
        number = strtol(text, &end, 10);
        strcpy(text + 250, end);
        strcat(text, text + 250);
        snprintf(text + 100, 100, "%s/%ld/%5.2f", text, number, 2.5);
        strncpy(text + 200, "abc", 20);
        strncat(text + 200, "defgh", 2);
        number += strchr(text, ' ') - text + (long)strspn(text, "123");
    );
    printf("%s|%s|%s|%ld\n", text, text + 100, text + 200, number);
}

static void long_format(void) {
    static char text[3000];
    static int length;
    HANDLER(length = snprintf(text, sizeof text, "%2000d|", 5); length += snprintf(text + 2990, 5, "%d", 1234567););
    printf("%d %s %zu\n", length, text + 1990, strlen(text + 2990));
}

SCENARIOS({"memset_then_word", memset_then_word}, {"overlapping_sizes", overlapping_sizes},
          {"memcpy_of_nothing", memcpy_of_nothing}, {"overlapping_memmove", overlapping_memmove},
          {"zeroed_calloc", zeroed_calloc}, {"local_arrays", local_arrays}, {"lock_again", lock_again},
          {"unlock_of_a_free_lock", unlock_of_a_free_lock}, {"floating_point", floating_point},
          {"function_pointer", function_pointer}, {"empty_handlers", empty_handlers},
          {"text_functions", text_functions}, {"long_format", long_format})
