/* How to write a replacement of your own for a function that handlers call and that sei/wrap.h lacks: a shim. A guide
 * with an example is in docs/sei.md, "A call that is missing"; the library's own are in sei/shims.
 *
 * A shim is a plain C function, in a file that is compiled WITHOUT -fgnu-tm. The handlers' side declares it, behind the
 * function that it stands for:
 *
 *     int sei_call_getloadavg(double *, int) __attribute__((transaction_pure, transaction_wrap(getloadavg)));
 *
 * A handler runs twice, so a shim is called twice with the same arguments, once in each run. It may keep nothing in
 * memory that the first run leaves to the second one: the compiler does not look inside, and nothing of it is undone.
 * Bytes of the program that it writes, it announces (sei_rt_will_write); bytes that it reads, it reads where this run
 * has them (sei_rt_read_at). It locks nothing, and does not call back into the program.
 */
#ifndef SEI_SHIM_H
#define SEI_SHIM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#error "sei/shim.h is C only"
#endif

/* An argument of a call as one word. */
#define POINTER(p) ((uint64_t)(uintptr_t)(p))

/* ---- A recorded call: the first run makes it, the second is given its result. ---- */

/* Whether a recorded call took something from outside, such as bytes of a socket: its handler cannot begin again then,
 * and so waits for locks instead. */
enum { RECORDED = 0, TAKEN = 1 };

/* 1 in the first run: make the call. 0 in the second one. */
int sei_rt_runs_first(void);
/* Ends the call in both runs: `name` is a constant, the three words describe its arguments and must be the same in both
 * runs, `result` is what the first run got. Returns the first run's result, and sets errno to what it was then. */
int64_t sei_rt_recorded(const char *name, int taken, uint64_t a, uint64_t b, uint64_t c, int64_t result);
/* Behind sei_rt_recorded: the `length` bytes at `to`, which the call wrote, are kept by the first run, and written by
 * the second one. `skip` bytes of this call came before. `to` is a local, or was announced. */
void sei_rt_bytes(void *to, size_t skip, size_t length);
/* The results of this handler's earlier calls by that name with that first argument: how many, and their sum. */
size_t sei_rt_earlier(const char *name, uint64_t a, int64_t *sum);

/* ---- A deferred call: it is made once, after both runs agree. ---- */

/* function(a, b, c, sent, length) is called then. Both runs must defer the same, the bytes that are sent included; they
 * are copied, up to 64 MiB in one handler. */
void sei_rt_defer(void (*function)(uint64_t, uint64_t, uint64_t, const uint8_t *, size_t), uint64_t a, uint64_t b,
                  uint64_t c, const void *sent, size_t length);
/* Whether this handler has deferred a call, so far, whose first argument is `key`: a descriptor, or an address. Keys
 * from 2^63 on are those of names, and may be the third argument as well. Other first arguments are above 2^62. */
int sei_rt_waits(uint64_t key);
/* In a deferred call that has failed, although the program was told that it would succeed: errno says why. The process
 * ends with status 74 before replies that were to follow leave. */
_Noreturn void sei_rt_failed(const char *name);

/* ---- Memory of the program. ---- */

/* These bytes are about to be written: their old content is kept. Returns where this run writes them. */
void *sei_rt_will_write(void *to, size_t length);
/* Where this run reads what the program knows at `from`: another place only where the state is duplicated. */
const void *sei_rt_read_at(const void *from);
/* Memory for the program: the second run is given the first one's. */
void *sei_rt_memalign(size_t alignment, size_t bytes);
void *_ITM_malloc(size_t bytes);
void _ITM_free(void *block);

/* ---- What cannot be done. ---- */

/* Ends the process: a handler called this, and it cannot run twice. */
_Noreturn void sei_rt_refuse(const char *name);

/* Arguments of a printf format in which pointers are those of this run. Its list may be used once, or copied. */
struct sei_arguments {
    va_list list;
    char saved[176];
    _Alignas(16) char overflow[64 * 32 + 16];
};
/* %s is a read, %n is a write: `from` is left as it is, and `to` is what the C library is to be given. */
void sei_rt_translate(struct sei_arguments *to, const char *format, va_list from);
/* As in sei.h. */
uint32_t sei_crc(uint32_t seed, const void *p, size_t n);

/* Of other shims: refuses `name` if the handler has deferred a call under this key; ends the process if the descriptor
 * is a file's, whose deferred change has just failed. */
void sei_shim_settled(uint64_t key, const char *name);
void sei_shim_failed(int fd, const char *name);
void *sei_call_realloc(void *old, size_t bytes);

#endif
