/* Accesses of 16 and 32 bytes, and of x87 words: types that Rust does not pass as GCC does. */
#include <sei/shim.h>

#include <immintrin.h>
#include <string.h>

#define AVX __attribute__((target("avx")))

/* A long double has 10 bytes; the 6 behind them are padding that a store leaves alone. */
#define X87_BYTES 10

#define READS(type, attribute, suffix, load)                                       \
    attribute type _ITM_R##suffix(const type *p) { return load(sei_rt_read_at(p)); }   \
    attribute type _ITM_RaR##suffix(const type *p) { return load(sei_rt_read_at(p)); } \
    attribute type _ITM_RaW##suffix(const type *p) { return load(sei_rt_read_at(p)); } \
    attribute type _ITM_RfW##suffix(const type *p) { return load(sei_rt_read_at(p)); }

#define WRITES(type, attribute, suffix, bytes, store)                                              \
    attribute void _ITM_W##suffix(type *p, type v) { store(sei_rt_will_write(p, bytes), v); }      \
    attribute void _ITM_WaR##suffix(type *p, type v) { store(sei_rt_will_write(p, bytes), v); }    \
    attribute void _ITM_WaW##suffix(type *p, type v) { store(sei_rt_will_write(p, bytes), v); }    \
    void _ITM_L##suffix(const type *p) { _ITM_LB(p, bytes); }

void _ITM_LB(const void *p, size_t length);

static long double load_x87(const void *p) { return *(const long double *)p; }
static void store_x87(void *p, long double v) { memcpy(p, &v, X87_BYTES); }
static __m128 load_16(const void *p) { return _mm_loadu_ps(p); }
static void store_16(void *p, __m128 v) { _mm_storeu_ps(p, v); }
AVX static __m256 load_32(const void *p) { return _mm256_loadu_ps(p); }
AVX static void store_32(void *p, __m256 v) { _mm256_storeu_ps(p, v); }
static __m64 load_8(const void *p) { return *(const __m64 *)p; }
static void store_8(void *p, __m64 v) { memcpy(p, &v, 8); }

READS(long double, , E, load_x87)
WRITES(long double, , E, X87_BYTES, store_x87)
READS(__m64, , M64, load_8)
WRITES(__m64, , M64, 8, store_8)
READS(__m128, , M128, load_16)
WRITES(__m128, , M128, 16, store_16)
READS(__m256, AVX, M256, load_32)
WRITES(__m256, AVX, M256, 32, store_32)
