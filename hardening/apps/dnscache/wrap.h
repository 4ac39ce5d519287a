/* djbdns copies, compares and sets bytes one by one, the worst case for a log of accesses. Here they are ranges. */
#include "sei.h"
#include <string.h>

/* The program's log is written by many copies of one byte. */
static inline void range_copy(void *to, unsigned n, const void *from)
{
  if (n == 1) *(char *)to = *(const char *)from;
  else memmove(to, from, n);
}
static inline void range_zero(void *to, unsigned n) { memset(to, 0, n); }
static inline int range_diff(const void *a, unsigned n, const void *b) { return memcmp(a, b, n); }
#define byte_copy range_copy
#define byte_zero range_zero
#define byte_diff range_diff
