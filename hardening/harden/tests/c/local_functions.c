/* Functions that are declared SEI_LOCAL: right_* write nothing but their own locals, wrong_* (with WRONG) do. */
#include "sei.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOCAL SEI_LOCAL __attribute__((noinline))
struct pair { int a, b; };
long served, words[8];
int word;
struct pair pair, *behind = &pair;
char text[40];
_Thread_local int mine;

__attribute__((noinline)) static void set(struct pair *to, int a) { to->a = a, to->b = a + word; }
__attribute__((noinline)) static int sum(const int *values, int n) {
    int all = 0;
    for (int i = 0; i < n; i++) all += values[i];
    return all;
}

LOCAL static int right_number(int n) { return n * 3 + word; }
LOCAL static int right_copy(const char *from) {
    char copy[20];
    strncpy(copy, from, 19);
    copy[19] = 0;
    return copy[word & 7];
}
LOCAL static int right_loop(int n) {
    int values[32];
    for (int i = 0; i < 32; i++) values[i] = i * n;
    return sum(values, 32);
}
LOCAL static int right_sort(int n) {
    unsigned char at[64];
    for (int i = 0; i < 64; i++) at[i] = (unsigned char)(text[i % 40] ^ n);
    for (int i = 0; i < 63; i++)
        for (int j = 0; j < 63 - i; j++)
            if (at[j] > at[j + 1]) { unsigned char kept = at[j]; at[j] = at[j + 1], at[j + 1] = kept; }
    return at[n & 63];
}
LOCAL static struct pair right_struct(int n) { struct pair made = { n, word }; made.a += made.b; return made; }
LOCAL static int right_by_helper(int n) { struct pair own; set(&own, n); return own.b; }
LOCAL static int right_pointer(int n) {
    struct pair own[4], *at = own;
    for (; at < own + 4; at++) at->a = n, at->b = word;
    return own[n & 3].a;
}
LOCAL static int right_choice(int n) {
    int a[4] = {0}, b[4] = {0}, *to = n > word ? a : b;
    to[n & 3] = 5;
    return sum(a, 4) + sum(b, 4);
}
LOCAL static int right_errno(int n) { errno = n; return errno; }
LOCAL static int right_printed(int n) { char line[30]; return snprintf(line, sizeof line, "%d", n) + line[0]; }
LOCAL static int right_volatile(void) { return *(volatile int *)&word; }
LOCAL static unsigned right_assembly(void) {
    unsigned a, d;
    __asm__ volatile("rdtsc" : "=a"(a), "=d"(d));
    return a | d;
}
LOCAL static int right_cleared(int n) { char own[300]; memset(own, n, sizeof own); return own[word & 127]; }

#ifdef WRONG
LOCAL static void wrong_counter(void) { served++; }
LOCAL static void wrong_element(int n) { words[n & 7] = n; }
LOCAL static void wrong_member(int n) { pair.b = n; }
LOCAL static void wrong_parameter(int *to, int n) { *to = n; }
LOCAL static void wrong_arrow(struct pair *to, int n) { to->b = n; }
LOCAL static void wrong_loaded(int n) { behind->a = n; }
LOCAL static void wrong_static(void) { static int calls; if (calls++ & 1) text[calls & 31] = 1; }
LOCAL static void wrong_thread(int n) { mine = mine * 3 + n; }
LOCAL static void wrong_memcpy(const char *from, int n) { memcpy(text, from, (size_t)n & 31); }
LOCAL static void wrong_strcpy(char *to, const char *from) { strcpy(to, from); }
LOCAL static void wrong_by_helper(int n) { set(behind, n); }
LOCAL static void wrong_struct(struct pair *to, const struct pair *from) { *to = *from; }
LOCAL static void wrong_choice(int n) { int own[4] = {0}; int *to = n > 3 ? own : &word; *to = n; served += own[0]; }
LOCAL static void wrong_atomic(void) { __atomic_fetch_add(&served, 1, __ATOMIC_RELAXED); }
LOCAL static void wrong_loop(long *at, int n) { for (int i = 0; i < n; i++) at[i] = i; }
#endif

long result;

int main(int count, char **arguments) {
    SEI_BEGIN_NM() {
        result = right_number(count) + right_copy(text + count) + right_loop(count) + right_sort(count);
        result += right_struct(count).a + right_by_helper(count) + right_pointer(count) + right_choice(count);
        result += right_errno(count) + right_printed(count) + right_volatile() + right_assembly();
        result += right_cleared(count);
#ifdef WRONG
        wrong_counter(), wrong_element(count), wrong_member(count), wrong_parameter(&word, count);
        wrong_arrow(&pair, count), wrong_loaded(count), wrong_static(), wrong_thread(count);
        wrong_memcpy(arguments[0], count), wrong_strcpy(text, arguments[0]), wrong_by_helper(count);
        wrong_struct(&pair, behind), wrong_choice(count), wrong_atomic(), wrong_loop(words, count);
#endif
    }
    SEI_END();
    return arguments == 0;
}
