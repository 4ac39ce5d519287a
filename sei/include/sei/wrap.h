/* What calls of the C library and of POSIX threads become inside handlers. Include it before everything else:
 * gcc -include sei/wrap.h. Outside of handlers, and in other processes' code, nothing changes.
 *
 * A function is pure (it reads memory only, or what it writes are locals), or it is replaced by one of this library
 * that records its result in the first run and gives it again in the second (recorded), waits until both runs agree
 * (deferred), or keeps what it overwrites (writer). A function that is not here cannot be called in a handler: the
 * compiler says so.
 */
#ifndef SEI_WRAP_H
#define SEI_WRAP_H

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef SEI_NATIVE

#define SEI_PURE __attribute__((transaction_pure))
#define SEI_WRAP(result, name, arguments) \
    result sei_call_##name arguments __attribute__((transaction_pure, transaction_wrap(name)))

/* Pure: they read. */
#ifndef SEI_DUP
int memcmp(const void *, const void *, size_t) SEI_PURE;
int strcmp(const char *, const char *) SEI_PURE;
int strncmp(const char *, const char *, size_t) SEI_PURE;
int strcasecmp(const char *, const char *) SEI_PURE;
int strncasecmp(const char *, const char *, size_t) SEI_PURE;
size_t strlen(const char *) SEI_PURE;
size_t strnlen(const char *, size_t) SEI_PURE;
size_t strspn(const char *, const char *) SEI_PURE;
size_t strcspn(const char *, const char *) SEI_PURE;
int atoi(const char *) SEI_PURE;
long atol(const char *) SEI_PURE;
void *memchr(const void *, int, size_t) SEI_PURE;
char *strchr(const char *, int) SEI_PURE;
char *strrchr(const char *, int) SEI_PURE;
char *strstr(const char *, const char *) SEI_PURE;
char *strpbrk(const char *, const char *) SEI_PURE;
#else
/* The second run reads the second copy of the state. */
SEI_WRAP(int, memcmp, (const void *, const void *, size_t));
SEI_WRAP(int, strcmp, (const char *, const char *));
SEI_WRAP(int, strncmp, (const char *, const char *, size_t));
SEI_WRAP(int, strcasecmp, (const char *, const char *));
SEI_WRAP(int, strncasecmp, (const char *, const char *, size_t));
SEI_WRAP(size_t, strlen, (const char *));
SEI_WRAP(size_t, strnlen, (const char *, size_t));
SEI_WRAP(size_t, strspn, (const char *, const char *));
SEI_WRAP(size_t, strcspn, (const char *, const char *));
SEI_WRAP(int, atoi, (const char *));
SEI_WRAP(long, atol, (const char *));
SEI_WRAP(void *, memchr, (const void *, int, size_t));
SEI_WRAP(char *, strchr, (const char *, int));
SEI_WRAP(char *, strrchr, (const char *, int));
SEI_WRAP(char *, strstr, (const char *, const char *));
SEI_WRAP(char *, strpbrk, (const char *, const char *));
#endif
int *__errno_location(void) SEI_PURE;
const unsigned short **__ctype_b_loc(void) SEI_PURE;
const int **__ctype_tolower_loc(void) SEI_PURE;
const int **__ctype_toupper_loc(void) SEI_PURE;
int (tolower)(int) SEI_PURE;
int (toupper)(int) SEI_PURE;
int (isalnum)(int) SEI_PURE;
int (isalpha)(int) SEI_PURE;
int (isdigit)(int) SEI_PURE;
int (isspace)(int) SEI_PURE;
int (isxdigit)(int) SEI_PURE;
int (isgraph)(int) SEI_PURE;
int (isprint)(int) SEI_PURE;
int (iscntrl)(int) SEI_PURE;
int (ispunct)(int) SEI_PURE;
int (isupper)(int) SEI_PURE;
int (islower)(int) SEI_PURE;
pthread_t pthread_self(void) SEI_PURE;
pid_t getpid(void) SEI_PURE;

/* Writers: they keep what they overwrite, then do as their original does. */
SEI_WRAP(char *, strcpy, (char *, const char *));
SEI_WRAP(char *, strncpy, (char *, const char *, size_t));
SEI_WRAP(char *, strcat, (char *, const char *));
SEI_WRAP(char *, strncat, (char *, const char *, size_t));
SEI_WRAP(char *, stpcpy, (char *, const char *));
SEI_WRAP(int, snprintf, (char *, size_t, const char *, ...));
SEI_WRAP(int, vsnprintf, (char *, size_t, const char *, va_list));
SEI_WRAP(int, sprintf, (char *, const char *, ...));
SEI_WRAP(long, strtol, (const char *, char **, int));
SEI_WRAP(long long, strtoll, (const char *, char **, int));
SEI_WRAP(unsigned long, strtoul, (const char *, char **, int));
SEI_WRAP(unsigned long long, strtoull, (const char *, char **, int));

/* Allocation; malloc, calloc and free are redirected by the compiler itself. */
SEI_WRAP(void *, realloc, (void *, size_t));
SEI_WRAP(int, posix_memalign, (void **, size_t, size_t));
SEI_WRAP(char *, strdup, (const char *));
SEI_WRAP(char *, strndup, (const char *, size_t));

/* Recorded: the second run is given the first one's result, errno and bytes. */
SEI_WRAP(time_t, time, (time_t *));
SEI_WRAP(int, gettimeofday, (struct timeval *, void *));
SEI_WRAP(int, clock_gettime, (clockid_t, struct timespec *));
SEI_WRAP(long, random, (void));
SEI_WRAP(int, rand, (void));
SEI_WRAP(int, socket, (int, int, int));
SEI_WRAP(int, bind, (int, const struct sockaddr *, socklen_t));
SEI_WRAP(int, connect, (int, const struct sockaddr *, socklen_t));
SEI_WRAP(int, accept, (int, struct sockaddr *, socklen_t *));
SEI_WRAP(int, getpeername, (int, struct sockaddr *, socklen_t *));
SEI_WRAP(int, getsockname, (int, struct sockaddr *, socklen_t *));
SEI_WRAP(int, fcntl, (int, int, ...));
SEI_WRAP(ssize_t, recv, (int, void *, size_t, int));
SEI_WRAP(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *, socklen_t *));
SEI_WRAP(ssize_t, read, (int, void *, size_t));

/* Deferred: they happen once, after both runs agree. They return as if they had succeeded. */
SEI_WRAP(ssize_t, send, (int, const void *, size_t, int));
SEI_WRAP(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t));
SEI_WRAP(ssize_t, sendmsg, (int, const struct msghdr *, int));
SEI_WRAP(ssize_t, write, (int, const void *, size_t));
SEI_WRAP(int, close, (int));
SEI_WRAP(int, fprintf, (FILE *, const char *, ...));
SEI_WRAP(int, vfprintf, (FILE *, const char *, va_list));
SEI_WRAP(int, fputs, (const char *, FILE *));
SEI_WRAP(size_t, fwrite, (const void *, size_t, size_t, FILE *));
SEI_WRAP(void, perror, (const char *));
SEI_WRAP(int, pthread_cond_signal, (pthread_cond_t *));
SEI_WRAP(int, pthread_cond_broadcast, (pthread_cond_t *));

/* Locks: taken in the first run, held until both runs agree. */
SEI_WRAP(int, pthread_mutex_lock, (pthread_mutex_t *));
SEI_WRAP(int, pthread_mutex_trylock, (pthread_mutex_t *));
SEI_WRAP(int, pthread_mutex_unlock, (pthread_mutex_t *));

/* Refused: the process ends with the function's name when a handler gets there. */
SEI_WRAP(int, pthread_cond_wait, (pthread_cond_t *, pthread_mutex_t *));
SEI_WRAP(int, pthread_create, (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *));
SEI_WRAP(pid_t, fork, (void));
/* With NDEBUG the header does not declare it. */
extern void __assert_fail(const char *, const char *, unsigned, const char *) __attribute__((noreturn, nothrow));
void sei_call_exit(int) __attribute__((noreturn, transaction_pure, transaction_wrap(exit)));
void sei_call___assert_fail(const char *, const char *, unsigned, const char *)
    __attribute__((noreturn, transaction_pure, transaction_wrap(__assert_fail)));

#endif
#endif
