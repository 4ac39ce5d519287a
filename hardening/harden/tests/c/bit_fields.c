/* Bit-fields in every way in which C programs declare and use them, one function each: bits.rs wants all of them named.
 */
#include "sei.h"
#include <stdbool.h>

#define FORM(number, ...) \
    __attribute__((noinline)) void form_##number(int n) { __VA_ARGS__; }
#define WIDTH(bits) (bits)
#define FLAG(name) unsigned name : WIDTH(1)
enum { BIT = 1, THREE = 3 };
enum color { RED, GREEN };
typedef unsigned int word;

/* How a width is written. */
struct { unsigned pad : 1, m1 : 1; } v1;
struct { unsigned pad : 1, m2 : (1); } v2;
struct { unsigned pad : 1, m3 : BIT; } v3;
struct { unsigned pad : 1, m4 : 1 __attribute__((unused)); } v4;
struct { unsigned pad : 1, m5 : sizeof(char); } v5;
struct { unsigned pad : 1, m6 : WIDTH(3); } v6;
struct { unsigned pad : 1, m7 : 0x3; } v7;
struct { unsigned pad : 1, m8 : 03; } v8;
struct { unsigned pad : 1, m9 : 3u; } v9;
struct { unsigned pad : 1, m10 : 1 + 2; } v10;
struct { unsigned pad : 1, m11 : (BIT ? 2 : 3); } v11;
struct { unsigned pad : 1, m12 : '\3'; } v12;
struct { unsigned pad : 1, m13
    :
    3; } v13;
struct { unsigned pad : 1, m14 /* the width */ : /* is three */ 3; } v14;
struct { FLAG(pad); FLAG(m15); } v15;
struct { unsigned pad:1,m16:1; } v16;
struct { unsigned pad : 1, m17 : sizeof(int[THREE]) / sizeof(int); } v17;
FORM(1, v1.m1 = n)
FORM(2, v2.m2 = n)
FORM(3, v3.m3 = n)
FORM(4, v4.m4 = n)
FORM(5, v5.m5 = n)
FORM(6, v6.m6 = n)
FORM(7, v7.m7 = n)
FORM(8, v8.m8 = n)
FORM(9, v9.m9 = n)
FORM(10, v10.m10 = n)
FORM(11, v11.m11 = n)
FORM(12, v12.m12 = n)
FORM(13, v13.m13 = n)
FORM(14, v14.m14 = n)
FORM(15, v15.m15 = n)
FORM(16, v16.m16 = n)
FORM(17, v17.m17 = n)

/* What its type is. */
struct { bool pad : 1, m18 : 1; } v18;
struct { signed pad : 1, m19 : 4; } v19;
struct { enum color pad : 2, m20 : 2; } v20;
struct { long long pad : 20, m21 : 33; } v21;
struct { char pad : 4, m22 : 4; } v22;
struct { word pad : 5, m23 : 11; } v23;
struct { const unsigned pad : 1; unsigned short m24 : 7; } v24;
struct { unsigned pad : 1; __typeof__(int) m25 : 7; } v25;
struct { unsigned pad : 1; __extension__ unsigned long m26 : 40; } v26;
FORM(18, v18.m18 = n)
FORM(19, v19.m19 = n)
FORM(20, v20.m20 = n)
FORM(21, v21.m21 = n)
FORM(22, v22.m22 = n)
FORM(23, v23.m23 = n)
FORM(24, v24.m24 = n)
FORM(25, v25.m25 = n)
FORM(26, v26.m26 = n)

/* Where it is. */
struct { int plain; union { struct { unsigned pad : 3, m27 : 3; }; unsigned all; }; } v27;
struct outer { int plain; struct inner { unsigned pad : 3, m28 : 3; } in; } v28;
struct { char plain; unsigned pad : 3, m29 : 9; } __attribute__((packed)) v29;
union { unsigned m30 : 5; unsigned all; } v30;
typedef struct { unsigned pad : 3, m31 : 3; } named;
named v31[4];
struct { unsigned pad : 3; unsigned : 0; unsigned m32 : 3; } *v32;
struct s33 { unsigned pad : 3, m33 : 3; } v33;
_Thread_local struct { unsigned pad : 3, m34 : 3; } v34;
FORM(27, v27.m27 = n)
FORM(28, v28.in.m28 = n)
FORM(29, v29.m29 = n)
FORM(30, v30.m30 = n)
FORM(31, v31[n].m31 = n)
FORM(32, v32->m32 = n)
static inline void through(void *p, int n) { ((struct s33 *)p)->m33 = n; }
FORM(33, through(&v33, n))
FORM(34, v34.m34 = n)
FORM(35, struct local { unsigned pad : 3, m35 : 3; } *p = (struct local *)&v33; p->m35 = n)

/* How it is used. */
struct { unsigned pad : 3, m36 : 3, m37 : 3, m38 : 3, m39 : 3, m40 : 3; } v36, w36, *p36 = &v36;
long seen;
FORM(36, v36.m36++)
FORM(37, p36[n].m37 |= 2)
FORM(38, seen = v36.m38)
FORM(39, v36.m39 = w36.pad)
FORM(40, if (n & p36->m40) seen++)

/* Where it is declared does not matter either: from here on this is a header of the system. */
#pragma GCC system_header
struct { unsigned pad : 3, m41 : 3; } v41;
FORM(41, v41.m41 = n)

#define FORMS(DO) \
    DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) \
    DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27) DO(28) DO(29) DO(30) DO(31) DO(32) DO(33) \
    DO(34) DO(35) DO(36) DO(37) DO(38) DO(39) DO(40) DO(41)
#define CALL(number) form_##number(count);

int main(int count, char **words) {
    (void)words;
    SEI_BEGIN_NM() {
        FORMS(CALL)
    }
    SEI_END();
    return 0;
}
