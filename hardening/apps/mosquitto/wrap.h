/* What mosquitto's handlers call beside what sei/wrap.h has. */
#include "sei.h"
#include <math.h>

double exp(double) SEI_LOCAL;

/* The program's log, with any number of arguments: the line is made at once, and written when both runs agree. */
struct mosquitto;
int log__printf(struct mosquitto *, unsigned int, const char *, ...);
#ifndef SEI_NATIVE
#include "sei/shim.h"
int log__deferred(struct mosquitto *, unsigned int, const char *, ...)
	__attribute__((transaction_pure, transaction_wrap(log__printf)));
#endif
