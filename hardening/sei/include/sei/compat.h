/* The names of libsei (the library of the paper) for the functions of sei.h, so that its users' programs compile. */
#ifndef SEI_COMPAT_H
#define SEI_COMPAT_H

#include "../sei.h"

#define __begin(p, n, crc) SEI_BEGIN(p, n, crc)
#define __begin_rw(p, n, crc) SEI_BEGIN_RW(p, n, crc)
#define __begin_nm() SEI_BEGIN_NM()
#define __end() SEI_END()
#define __output_append(p, n) sei_output_append(p, n)
#define __output_done() sei_output_done()
#define __crc_pop() sei_crc_pop()
#define __ignore(p, n) sei_ignore_addr(p, n)
#define __barrier() sei_barrier()
#define __shift(context) sei_shift(context)

#endif
