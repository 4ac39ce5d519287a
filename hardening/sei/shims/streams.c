/* Standard I/O in handlers: what is printed is deferred; what is read is recorded, in a stream that the C library keeps
 * outside of handlers' memory.
 */
#include <sei/shim.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

int sei_call_open(const char *path, int flags, ...);

/* In the first argument of a deferred call: it is neither a descriptor nor a stream. */
#define NO_KEY ((uint64_t)1 << 62)

/* ---- Deferred. ---- */

static void do_fwrite(uint64_t file, uint64_t unused, uint64_t unused_too, const uint8_t *bytes, size_t length) {
    (void)unused, (void)unused_too;
    if (fwrite(bytes, 1, length, (FILE *)(uintptr_t)file) < length) {
        sei_shim_failed(fileno((FILE *)(uintptr_t)file), "fwrite");
    }
}

size_t sei_call_fwrite(const void *from, size_t size, size_t count, FILE *file) {
    sei_rt_defer(do_fwrite, POINTER(file), 0, 0, from, size * count);
    return count;
}

int sei_call_fputs(const char *text, FILE *file) {
    sei_rt_defer(do_fwrite, POINTER(file), 0, 0, text, strlen(sei_rt_read_at(text)));
    return 0;
}

int sei_call_puts(const char *text) {
    sei_call_fputs(text, stdout);
    sei_rt_defer(do_fwrite, POINTER(stdout), 0, 0, "\n", 1);
    return 1;
}

int sei_call_fputc(int byte, FILE *file) {
    unsigned char put = (unsigned char)byte;
    sei_rt_defer(do_fwrite, POINTER(file), 0, 0, &put, 1);
    return put;
}

int sei_call_putc(int byte, FILE *file) { return sei_call_fputc(byte, file); }
int sei_call_putchar(int byte) { return sei_call_fputc(byte, stdout); }

int sei_call_vfprintf(FILE *file, const char *format, va_list arguments) {
    char *text;
    struct sei_arguments translated;
    sei_rt_translate(&translated, sei_rt_read_at(format), arguments);
    int length = vasprintf(&text, sei_rt_read_at(format), translated.list);
    if (length >= 0) {
        sei_rt_defer(do_fwrite, POINTER(file), 0, 0, text, (size_t)length);
        free(text);
    }
    return length;
}

int sei_call_fprintf(FILE *file, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = sei_call_vfprintf(file, format, arguments);
    va_end(arguments);
    return length;
}

int sei_call_vprintf(const char *format, va_list arguments) { return sei_call_vfprintf(stdout, format, arguments); }

int sei_call_printf(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = sei_call_vfprintf(stdout, format, arguments);
    va_end(arguments);
    return length;
}

void sei_call_perror(const char *text) {
    char line[300];
    int length = snprintf(line, sizeof line, "%s: %s\n", (const char *)sei_rt_read_at(text), strerror(errno));
    sei_rt_defer(do_fwrite, POINTER(stderr), 0, 0, line, length < (int)sizeof line ? (size_t)length : sizeof line - 1);
}

/* Declared here, since the names of its header are those of many programs, too. */
void syslog(int priority, const char *format, ...);

static void do_syslog(uint64_t priority, uint64_t unused, uint64_t unused_too, const uint8_t *bytes, size_t length) {
    (void)unused, (void)unused_too;
    syslog((int)(priority & ~NO_KEY), "%.*s", (int)length, (const char *)bytes);
}

void sei_call_vsyslog(int priority, const char *format, va_list arguments) {
    char *text;
    struct sei_arguments translated;
    sei_rt_translate(&translated, sei_rt_read_at(format), arguments);
    int length = vasprintf(&text, sei_rt_read_at(format), translated.list);
    if (length >= 0) {
        sei_rt_defer(do_syslog, NO_KEY | (uint64_t)priority, 0, 0, text, (size_t)length);
        free(text);
    }
}

void sei_call_syslog(int priority, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    sei_call_vsyslog(priority, format, arguments);
    va_end(arguments);
}

static void do_fflush(uint64_t file, uint64_t unused, uint64_t unused_too, const uint8_t *bytes, size_t length) {
    (void)unused, (void)unused_too, (void)bytes, (void)length;
    if (file == NO_KEY) {
        fflush(NULL);
    } else if (fflush((FILE *)(uintptr_t)file) != 0) {
        sei_shim_failed(fileno((FILE *)(uintptr_t)file), "fflush");
    }
}

int sei_call_fflush(FILE *file) {
    sei_rt_defer(do_fflush, file ? POINTER(file) : NO_KEY, 0, 0, NULL, 0);
    return 0;
}

static void do_fclose(uint64_t file, uint64_t unused, uint64_t unused_too, const uint8_t *bytes, size_t length) {
    (void)unused, (void)unused_too, (void)bytes, (void)length;
    do_fflush(file, 0, 0, NULL, 0);
    fclose((FILE *)(uintptr_t)file);
}

int sei_call_fclose(FILE *file) {
    sei_rt_defer(do_fclose, POINTER(file), 0, 0, NULL, 0);
    return 0;
}

/* ---- Recorded. ---- */

static int flags_of(const char *mode) {
    int writes = mode[0] == 'w' ? O_CREAT | O_TRUNC | O_WRONLY : O_CREAT | O_APPEND | O_WRONLY;
    int flags = mode[0] == 'r' ? O_RDONLY : writes;
    for (const char *at = mode + 1; *at && *at != ','; at++) {
        flags = *at == '+' ? (flags & ~O_ACCMODE) | O_RDWR : flags;
        flags |= *at == 'e' ? O_CLOEXEC : *at == 'x' ? O_EXCL : 0;
    }
    return flags;
}

FILE *sei_call_fdopen(int fd, const char *mode) {
    FILE *file = sei_rt_runs_first() ? fdopen(fd, sei_rt_read_at(mode)) : NULL;
    return (FILE *)(uintptr_t)sei_rt_recorded("fdopen", TAKEN, (uint64_t)fd, 0, 0, (int64_t)POINTER(file));
}

FILE *sei_call_fopen(const char *path, const char *mode) {
    int fd = sei_call_open(path, flags_of(sei_rt_read_at(mode)), 0666);
    return fd < 0 ? NULL : sei_call_fdopen(fd, mode);
}

size_t sei_call_fread(void *to, size_t size, size_t count, FILE *file) {
    sei_shim_settled(POINTER(file), "fread");
    void *at = sei_rt_will_write(to, size * count);
    size_t got = sei_rt_runs_first() ? fread(at, size, count, file) : 0;
    got = (size_t)sei_rt_recorded("fread", TAKEN, POINTER(file), size, count, (int64_t)got);
    sei_rt_bytes(to, 0, size * got);
    return got;
}

char *sei_call_fgets(char *to, int n, FILE *file) {
    sei_shim_settled(POINTER(file), "fgets");
    if (n <= 0) {
        return NULL;
    }
    char *at = sei_rt_will_write(to, (size_t)n);
    int64_t length = sei_rt_runs_first() && fgets(at, n, file) ? (int64_t)strlen(at) + 1 : 0;
    length = sei_rt_recorded("fgets", TAKEN, POINTER(file), POINTER(to), (uint64_t)n, length);
    sei_rt_bytes(to, 0, (size_t)length);
    return length ? to : NULL;
}

/* Of one stream, with one more argument, done in the first run. */
#define OF_STREAM(result, name, declared, passed, argument)                                         \
    result sei_call_##name declared {                                                               \
        sei_shim_settled(POINTER(file), #name);                                                                    \
        int64_t got = sei_rt_runs_first() ? (int64_t)name passed : 0;                               \
        return (result)sei_rt_recorded(#name, TAKEN, POINTER(file), (uint64_t)(argument), 0, got);  \
    }

OF_STREAM(int, getc, (FILE *file), (file), 0)
OF_STREAM(int, fgetc, (FILE *file), (file), 0)
OF_STREAM(int, ungetc, (int byte, FILE *file), (byte, file), byte)
OF_STREAM(int, feof, (FILE *file), (file), 0)
OF_STREAM(int, ferror, (FILE *file), (file), 0)
OF_STREAM(int, fseek, (FILE *file, long offset, int whence), (file, offset, whence), offset * 4 + whence)
OF_STREAM(int, fseeko, (FILE *file, off_t offset, int whence), (file, offset, whence), offset * 4 + whence)
OF_STREAM(long, ftell, (FILE *file), (file), 0)
OF_STREAM(off_t, ftello, (FILE *file), (file), 0)

void sei_call_rewind(FILE *file) { sei_call_fseek(file, 0, SEEK_SET); }

void sei_call_clearerr(FILE *file) {
    if (sei_rt_runs_first()) {
        clearerr(file);
    }
    sei_rt_recorded("clearerr", TAKEN, POINTER(file), 0, 0, 0);
}
