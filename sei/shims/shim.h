/* What the shims need of the library (sei/src/api.rs), and how a shim is written.
 *
 * A recorded call: make it in the first run only, then pass its result through sei_rt_recorded, which returns that of
 * the first run in the second. Bytes that it wrote pass through sei_rt_bytes in the same way.
 */
#ifndef SEI_SHIM_H
#define SEI_SHIM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* Whether a recorded call took something from outside, so that its handler cannot begin again. */
enum { RECORDED = 0, TAKEN = 1 };

int sei_rt_runs_first(void);
int64_t sei_rt_recorded(const char *name, int taken, uint64_t a, uint64_t b, uint64_t c, int64_t result);
/* The results of this handler's earlier calls by that name with that first argument: how many, and their sum. */
size_t sei_rt_earlier(const char *name, uint64_t a, int64_t *sum);
void sei_rt_bytes(void *to, size_t skip, size_t length);
void *sei_rt_will_write(void *to, size_t length);
const void *sei_rt_read_at(const void *from);
void sei_rt_defer(void (*function)(uint64_t, uint64_t, uint64_t, const uint8_t *, size_t), uint64_t a, uint64_t b,
                  uint64_t c, const void *sent, size_t length);
_Noreturn void sei_rt_refuse(const char *name);
void *sei_rt_memalign(size_t alignment, size_t bytes);
void *_ITM_malloc(size_t bytes);
void _ITM_free(void *block);

/* Arguments of a format in which pointers are those of this run. Its list may be used once, or copied. */
struct sei_arguments {
    va_list list;
    char saved[176];
    _Alignas(16) char overflow[64 * 32 + 16];
};
/* %s is a read, %n is a write: `from` is left as it is, and `to` is what the C library is to be given. */
void sei_rt_translate(struct sei_arguments *to, const char *format, va_list from);
uint32_t sei_crc(uint32_t seed, const void *p, size_t n);

#endif
