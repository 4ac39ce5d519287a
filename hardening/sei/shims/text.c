/* Strings in handlers: functions that write keep what they overwrite; functions that read look into the copy of the
 * state that the present run works on. */
#include <sei/shim.h>

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define READ(p) ((const char *)sei_rt_read_at(p))

/* Where the program finds what this run found at `found`, in the text that it knows at `from`. */
static char *known(const char *found, const char *from) { return found ? (char *)from + (found - READ(from)) : NULL; }

/* Readers; wrap.h redirects them where the state is duplicated. */
int sei_call_memcmp(const void *a, const void *b, size_t n) { return memcmp(READ(a), READ(b), n); }
int sei_call_strcmp(const char *a, const char *b) { return strcmp(READ(a), READ(b)); }
int sei_call_strncmp(const char *a, const char *b, size_t n) { return strncmp(READ(a), READ(b), n); }
int sei_call_strcasecmp(const char *a, const char *b) { return strcasecmp(READ(a), READ(b)); }
int sei_call_strncasecmp(const char *a, const char *b, size_t n) { return strncasecmp(READ(a), READ(b), n); }
int sei_call_strcoll(const char *a, const char *b) { return strcoll(READ(a), READ(b)); }
size_t sei_call_strlen(const char *a) { return strlen(READ(a)); }
size_t sei_call_strnlen(const char *a, size_t n) { return strnlen(READ(a), n); }
size_t sei_call_strspn(const char *a, const char *b) { return strspn(READ(a), READ(b)); }
size_t sei_call_strcspn(const char *a, const char *b) { return strcspn(READ(a), READ(b)); }
int sei_call_atoi(const char *a) { return atoi(READ(a)); }
long sei_call_atol(const char *a) { return atol(READ(a)); }
void *sei_call_memchr(const void *a, int c, size_t n) { return known(memchr(READ(a), c, n), a); }
char *sei_call_strchr(const char *a, int c) { return known(strchr(READ(a), c), a); }
char *sei_call_strrchr(const char *a, int c) { return known(strrchr(READ(a), c), a); }
void *sei_call_memrchr(const void *a, int c, size_t n) { return known(memrchr(READ(a), c, n), a); }
char *sei_call_strcasestr(const char *a, const char *b) { return known(strcasestr(READ(a), READ(b)), a); }
int sei_call_fnmatch(const char *a, const char *b, int flags) { return fnmatch(READ(a), READ(b), flags); }
long long sei_call_atoll(const char *a) { return atoll(READ(a)); }
double sei_call_atof(const char *a) { return atof(READ(a)); }
char *sei_call_strstr(const char *a, const char *b) { return known(strstr(READ(a), READ(b)), a); }
char *sei_call_strpbrk(const char *a, const char *b) { return known(strpbrk(READ(a), READ(b)), a); }

/* Writers. */
char *sei_call_strcpy(char *to, const char *from) {
    size_t length = strlen(READ(from)) + 1;
    memmove(sei_rt_will_write(to, length), READ(from), length);
    return to;
}

char *sei_call_stpcpy(char *to, const char *from) {
    size_t length = strlen(READ(from));
    sei_call_strcpy(to, from);
    return to + length;
}

char *sei_call_strncpy(char *to, const char *from, size_t n) {
    strncpy(sei_rt_will_write(to, n), READ(from), n);
    return to;
}

char *sei_call_strcat(char *to, const char *from) {
    sei_call_strcpy(to + strlen(READ(to)), from);
    return to;
}

char *sei_call_strncat(char *to, const char *from, size_t n) {
    char *end = to + strlen(READ(to));
    size_t length = strnlen(READ(from), n);
    char *at = sei_rt_will_write(end, length + 1);
    memmove(at, READ(from), length);
    at[length] = '\0';
    return to;
}

/* The text is made beside its place first, so that no more is kept than is overwritten. */
int sei_call_vsnprintf(char *to, size_t n, const char *format, va_list arguments) {
    char beside[512];
    struct sei_arguments translated;
    sei_rt_translate(&translated, READ(format), arguments);
    va_list again;
    va_copy(again, translated.list);
    int length = vsnprintf(beside, sizeof beside, READ(format), translated.list);
    if (length >= 0 && n > 0) {
        size_t written = (size_t)length < n ? (size_t)length + 1 : n;
        char *at = sei_rt_will_write(to, written);
        if (written <= sizeof beside) {
            memcpy(at, beside, written - 1);
            at[written - 1] = '\0';
        } else {
            vsnprintf(at, written, READ(format), again);
        }
    }
    va_end(again);
    return length;
}

int sei_call_snprintf(char *to, size_t n, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = sei_call_vsnprintf(to, n, format, arguments);
    va_end(arguments);
    return length;
}

int sei_call_sprintf(char *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = sei_call_vsnprintf(to, (size_t)1 << 31, format, arguments);
    va_end(arguments);
    return length;
}

/* Numbers: the address behind the number is a write as well. */
static void store_end(char **end, const char *known_end) {
    if (end) {
        char *value = (char *)known_end;
        memcpy(sei_rt_will_write(end, sizeof *end), &value, sizeof value);
    }
}

#define NUMBER(type, name)                                           \
    type sei_call_##name(const char *from, char **end, int base) {   \
        char *found;                                                 \
        type number = name(READ(from), &found, base);                \
        int error = errno;                                           \
        store_end(end, known(found, from));                          \
        errno = error;                                               \
        return number;                                               \
    }

#define REAL(type, name)                                   \
    type sei_call_##name(const char *from, char **end) {   \
        char *found;                                       \
        type number = name(READ(from), &found);            \
        int error = errno;                                 \
        store_end(end, known(found, from));                \
        errno = error;                                     \
        return number;                                     \
    }

REAL(float, strtof)
REAL(double, strtod)
REAL(long double, strtold)
NUMBER(intmax_t, strtoimax)
NUMBER(uintmax_t, strtoumax)
NUMBER(long, strtol)
NUMBER(long long, strtoll)
NUMBER(unsigned long, strtoul)
NUMBER(unsigned long long, strtoull)

/* Allocation. */
char *sei_call_strndup(const char *from, size_t n) {
    size_t length = strnlen(READ(from), n);
    char *to = _ITM_malloc(length + 1);
    if (to) {
        char *at = sei_rt_will_write(to, length + 1);
        memcpy(at, READ(from), length);
        at[length] = '\0';
    }
    return to;
}

int sei_call_vasprintf(char **to, const char *format, va_list arguments) {
    char *text;
    struct sei_arguments translated;
    sei_rt_translate(&translated, READ(format), arguments);
    int length = vasprintf(&text, READ(format), translated.list);
    if (length >= 0) {
        char *made = _ITM_malloc((size_t)length + 1);
        if (made) {
            memcpy(sei_rt_will_write(made, (size_t)length + 1), text, (size_t)length + 1);
        }
        memcpy(sei_rt_will_write(to, sizeof made), &made, sizeof made);
        length = made ? length : -1;
        free(text);
    }
    return length;
}

int sei_call_asprintf(char **to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = sei_call_vasprintf(to, format, arguments);
    va_end(arguments);
    return length;
}

/* ---- Names of errors, and bytes. ---- */

char *sei_call_strerror_r(int error, char *to, size_t n) {
    char text[256];
    const char *name = strerror_r(error, text, sizeof text);
    size_t length = strlen(name) + 1 < n ? strlen(name) + 1 : n;
    if (length > 0) {
        char *at = sei_rt_will_write(to, length);
        memcpy(at, name, length - 1);
        at[length - 1] = '\0';
    }
    return to;
}

/* The other one of that name, without _GNU_SOURCE. */
int sei_call___xpg_strerror_r(int error, char *to, size_t n) {
    const char *name = strerrordesc_np(error);
    sei_call_strerror_r(error, to, n);
    return !name ? EINVAL : strlen(name) >= n ? ERANGE : 0;
}

void sei_call_explicit_bzero(void *to, size_t n) { explicit_bzero(sei_rt_will_write(to, n), n); }

void *sei_call_mempcpy(void *to, const void *from, size_t n) {
    memcpy(sei_rt_will_write(to, n), READ(from), n);
    return (char *)to + n;
}

void *sei_call_reallocarray(void *old, size_t count, size_t bytes) {
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return sei_call_realloc(old, all);
}

char *sei_call_strdup(const char *from) { return sei_call_strndup(from, SIZE_MAX - 1); }
