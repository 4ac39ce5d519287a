/* Arguments of the printf family: a pointer among them is translated as every other one that a handler reads or writes
 * through. Formatting itself is the C library's.
 */
#include <sei/shim.h>

#include <stdbool.h>
#include <string.h>

/* Arguments of one format; a handler with more is refused. */
#define ARGUMENTS 64
/* Of the x86-64 System V interface: bytes of the saved integer registers, and of all saved registers. */
#define INTEGERS 48
#define REGISTERS 176

enum kind { NONE, INTEGER, REAL, LONG_REAL, TEXT, COUNT_1, COUNT_2, COUNT_4, COUNT_8 };

/* As the interface has it: `va_list` is an array of one. */
struct listed {
    unsigned integers, reals;
    char *overflow, *saved;
};

static const char *number_at(const char *at, size_t *number) {
    for (*number = 0; *at >= '0' && *at <= '9'; at++) {
        *number = *number < ARGUMENTS ? *number * 10 + (size_t)(*at - '0') : ARGUMENTS + 1;
    }
    return at;
}

/* Says what an argument is: the one that the format names, or else the next one. */
static void is_kind(enum kind *kinds, size_t *count, size_t *next, size_t named, enum kind kind) {
    size_t place = named ? named - 1 : (*next)++;
    if (place >= ARGUMENTS) {
        sei_rt_refuse("a printf with more than 64 arguments");
    }
    kinds[place] = kind;
    *count = place >= *count ? place + 1 : *count;
}

/* A `*`, which an argument stands for: `*`, or `*2$`. */
static const char *star(const char *at, enum kind *kinds, size_t *count, size_t *next) {
    size_t number;
    const char *end = number_at(at + 1, &number);
    bool is_named = number && *end == '$';
    is_kind(kinds, count, next, is_named ? number : 0, INTEGER);
    return is_named ? end + 1 : at + 1;
}

static enum kind kind_of(char conversion, int longs, int shorts, bool is_long_real) {
    switch (conversion) {
    case 's':
    case 'S':
        return TEXT;
    case 'n':
        return longs ? COUNT_8 : shorts == 0 ? COUNT_4 : shorts == 1 ? COUNT_2 : COUNT_1;
    case 'a':
    case 'A':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        return is_long_real ? LONG_REAL : REAL;
    case 'm':
    case '%':
    case '\0':
        return NONE;
    default:
        return INTEGER;
    }
}

/* What the arguments of a format are; returns how many there are. */
static size_t kinds_of(const char *format, enum kind *kinds) {
    size_t count = 0, next = 0;
    for (const char *at = format; (at = strchr(at, '%'));) {
        size_t named;
        const char *end = number_at(++at, &named);
        if (named && *end == '$') {
            at = end + 1;
        } else {
            named = 0;
        }
        int longs = 0, shorts = 0;
        bool is_long_real = false;
        for (;; at++) {
            if (*at == '*') {
                at = star(at, kinds, &count, &next) - 1;
            } else if (*at == 'h') {
                shorts++;
            } else if (*at && strchr("ljztqZ", *at)) {
                longs++;
            } else if (*at == 'L') {
                is_long_real = true, longs++;
            } else if (!*at || !strchr("0123456789 +-#'I.", *at)) {
                break;
            }
        }
        enum kind kind = kind_of(*at, longs, shorts, is_long_real);
        if (kind != NONE) {
            is_kind(kinds, &count, &next, named, kind);
        }
        at += *at != '\0';
    }
    return count;
}

static void translate(char *slot, enum kind kind) {
    char *pointer;
    memcpy(&pointer, slot, sizeof pointer);
    if (kind == TEXT) {
        pointer = (char *)sei_rt_read_at(pointer);
    } else if (kind >= COUNT_1) {
        pointer = sei_rt_will_write(pointer, (size_t)1 << (kind - COUNT_1));
    }
    memcpy(slot, &pointer, sizeof pointer);
}

/* Goes through all arguments, and translates them where `is_own`. Returns the bytes that lie on the stack. */
static size_t walk(struct listed at, const enum kind *kinds, size_t count, bool is_own) {
    char *begin = at.overflow;
    for (size_t i = 0; i < count; i++) {
        unsigned *used = kinds[i] == REAL ? &at.reals : &at.integers;
        unsigned step = kinds[i] == REAL ? 16 : 8, all = kinds[i] == REAL ? REGISTERS : INTEGERS;
        char *slot;
        if (kinds[i] == LONG_REAL) {
            at.overflow = (char *)(((uintptr_t)at.overflow + 15) & ~(uintptr_t)15) + 16;
            continue;
        }
        if (*used < all) {
            slot = at.saved + *used;
            *used += step;
        } else {
            slot = at.overflow;
            at.overflow += 8;
        }
        if (is_own && kinds[i] >= TEXT) {
            translate(slot, kinds[i]);
        }
    }
    return (size_t)(at.overflow - begin);
}

/* A format in which nothing is to be translated is the usual one: the first run reads where the program says, and so
 * does the second one where the state has one copy. */
static bool has_pointers(const char *format) {
#ifdef SEI_DUP
    if (!sei_rt_runs_first() && (strchr(format, 's') || strchr(format, 'S'))) {
        return true;
    }
#endif
    return strchr(format, 'n') != NULL;
}

void sei_rt_translate(struct sei_arguments *to, const char *format, va_list from) {
    va_copy(to->list, from);
    if (!has_pointers(format)) {
        return;
    }
    enum kind kinds[ARGUMENTS] = {NONE};
    size_t count = kinds_of(format, kinds);
    struct listed known;
    _Static_assert(sizeof known == sizeof to->list && sizeof to->saved == REGISTERS, "the System V interface");
    memcpy(&known, to->list, sizeof known);
    size_t bytes = walk(known, kinds, count, false);
    /* As far from a multiple of 16 as the program's own, whose long doubles are aligned. */
    char *overflow = to->overflow + ((uintptr_t)known.overflow & 15);
    memcpy(overflow, known.overflow, bytes);
    memcpy(to->saved, known.saved, REGISTERS);
    known.overflow = overflow;
    known.saved = to->saved;
    walk(known, kinds, count, true);
    memcpy(to->list, &known, sizeof known);
}
