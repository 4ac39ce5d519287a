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

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef SEI_NATIVE

#define SEI_PURE __attribute__((transaction_pure))
#define SEI_WRAP(result, name, arguments) \
    result sei_call_##name arguments __attribute__((transaction_pure, transaction_wrap(name)))

/* Declared here, since the names in their headers (LOG_INFO, IFF_UP) are those of many programs, too. */
struct addrinfo;
struct epoll_event;
struct ifaddrs;
struct rusage;
struct utsname;
extern int epoll_ctl(int, int, int, struct epoll_event *);
extern int flock(int, int);
extern int fnmatch(const char *, const char *, int);
extern void freeaddrinfo(struct addrinfo *);
extern void freeifaddrs(struct ifaddrs *);
extern const char *gai_strerror(int) SEI_PURE;
extern int getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
extern int getifaddrs(struct ifaddrs **);
extern int getnameinfo(const struct sockaddr *, socklen_t, char *, socklen_t, char *, socklen_t, int);
extern char *if_indextoname(unsigned, char *);
extern unsigned if_nametoindex(const char *);
extern int ioctl(int, unsigned long, ...);
extern void syslog(int, const char *, ...);
extern int uname(struct utsname *);
extern void vsyslog(int, const char *, va_list);

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
int strcoll(const char *, const char *) SEI_PURE;
long long atoll(const char *) SEI_PURE;
double atof(const char *) SEI_PURE;
void *memrchr(const void *, int, size_t) SEI_PURE;
char *strcasestr(const char *, const char *) SEI_PURE;
int fnmatch(const char *, const char *, int) SEI_PURE;
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
SEI_WRAP(int, strcoll, (const char *, const char *));
SEI_WRAP(long long, atoll, (const char *));
SEI_WRAP(double, atof, (const char *));
SEI_WRAP(void *, memrchr, (const void *, int, size_t));
SEI_WRAP(char *, strcasestr, (const char *, const char *));
SEI_WRAP(int, fnmatch, (const char *, const char *, int));
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
pid_t getppid(void) SEI_PURE;
pid_t gettid(void) SEI_PURE;
uid_t getuid(void) SEI_PURE;
uid_t geteuid(void) SEI_PURE;
gid_t getgid(void) SEI_PURE;
gid_t getegid(void) SEI_PURE;
int getpagesize(void) SEI_PURE;
long sysconf(int) SEI_PURE;
char *getenv(const char *) SEI_PURE;
char *strerror(int) SEI_PURE;
char *strsignal(int) SEI_PURE;
double difftime(time_t, time_t) SEI_PURE;
int (fileno)(FILE *) SEI_PURE;
int dirfd(DIR *) SEI_PURE;
int sched_yield(void) SEI_PURE;

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
SEI_WRAP(intmax_t, strtoimax, (const char *, char **, int));
SEI_WRAP(uintmax_t, strtoumax, (const char *, char **, int));
SEI_WRAP(float, strtof, (const char *, char **));
SEI_WRAP(double, strtod, (const char *, char **));
SEI_WRAP(long double, strtold, (const char *, char **));
SEI_WRAP(int, sscanf, (const char *, const char *, ...));
SEI_WRAP(int, vsscanf, (const char *, const char *, va_list));
SEI_WRAP(char *, strtok, (char *, const char *));
SEI_WRAP(char *, strtok_r, (char *, const char *, char **));
SEI_WRAP(char *, strsep, (char **, const char *));
SEI_WRAP(void *, mempcpy, (void *, const void *, size_t));
SEI_WRAP(void, explicit_bzero, (void *, size_t));
SEI_WRAP(char *, strerror_r, (int, char *, size_t));
SEI_WRAP(int, inet_aton, (const char *, struct in_addr *));
SEI_WRAP(int, inet_pton, (int, const char *, void *));
SEI_WRAP(const char *, inet_ntop, (int, const void *, char *, socklen_t));
SEI_WRAP(char *, inet_ntoa, (struct in_addr));
SEI_WRAP(struct tm *, localtime, (const time_t *));
SEI_WRAP(struct tm *, localtime_r, (const time_t *, struct tm *));
SEI_WRAP(struct tm *, gmtime, (const time_t *));
SEI_WRAP(struct tm *, gmtime_r, (const time_t *, struct tm *));
SEI_WRAP(time_t, mktime, (struct tm *));
SEI_WRAP(time_t, timegm, (struct tm *));
SEI_WRAP(size_t, strftime, (char *, size_t, const char *, const struct tm *));
SEI_WRAP(char *, strptime, (const char *, const char *, struct tm *));
SEI_WRAP(char *, ctime, (const time_t *));
SEI_WRAP(char *, ctime_r, (const time_t *, char *));

/* Their comparison is a part of the handler: declare it SEI_COMPARE. */
SEI_WRAP(void, qsort, (void *, size_t, size_t, int (*)(const void *, const void *)));
SEI_WRAP(void *, bsearch, (const void *, const void *, size_t, size_t, int (*)(const void *, const void *)));

/* Allocation; malloc, calloc and free are redirected by the compiler itself. */
SEI_WRAP(void *, realloc, (void *, size_t));
SEI_WRAP(int, posix_memalign, (void **, size_t, size_t));
SEI_WRAP(char *, strdup, (const char *));
SEI_WRAP(char *, strndup, (const char *, size_t));
SEI_WRAP(void *, reallocarray, (void *, size_t, size_t));
SEI_WRAP(int, asprintf, (char **, const char *, ...));
SEI_WRAP(int, vasprintf, (char **, const char *, va_list));

/* Recorded: the second run is given the first one's result, errno and bytes. */
extern int getrusage(int, struct rusage *);
SEI_WRAP(int, getrusage, (int, struct rusage *));
SEI_WRAP(time_t, time, (time_t *));
SEI_WRAP(int, gettimeofday, (struct timeval *, void *));
SEI_WRAP(int, clock_gettime, (clockid_t, struct timespec *));
SEI_WRAP(long, random, (void));
SEI_WRAP(int, rand, (void));
SEI_WRAP(void, srandom, (unsigned));
SEI_WRAP(void, srand, (unsigned));
SEI_WRAP(ssize_t, getrandom, (void *, size_t, unsigned));
SEI_WRAP(int, getentropy, (void *, size_t));
#if __GLIBC_PREREQ(2, 36)
SEI_WRAP(uint32_t, arc4random, (void));
SEI_WRAP(uint32_t, arc4random_uniform, (uint32_t));
SEI_WRAP(void, arc4random_buf, (void *, size_t));
#endif
SEI_WRAP(clock_t, clock, (void));
SEI_WRAP(int, gethostname, (char *, size_t));
SEI_WRAP(int, uname, (struct utsname *));
SEI_WRAP(unsigned, if_nametoindex, (const char *));
SEI_WRAP(char *, if_indextoname, (unsigned, char *));
SEI_WRAP(int, getaddrinfo, (const char *, const char *, const struct addrinfo *, struct addrinfo **));
SEI_WRAP(int, getifaddrs, (struct ifaddrs **));
SEI_WRAP(int, getnameinfo, (const struct sockaddr *, socklen_t, char *, socklen_t, char *, socklen_t, int));
SEI_WRAP(int, socket, (int, int, int));
SEI_WRAP(int, bind, (int, const struct sockaddr *, socklen_t));
SEI_WRAP(int, connect, (int, const struct sockaddr *, socklen_t));
SEI_WRAP(int, listen, (int, int));
SEI_WRAP(int, accept, (int, struct sockaddr *, socklen_t *));
SEI_WRAP(int, accept4, (int, struct sockaddr *, socklen_t *, int));
SEI_WRAP(int, getpeername, (int, struct sockaddr *, socklen_t *));
SEI_WRAP(int, getsockname, (int, struct sockaddr *, socklen_t *));
SEI_WRAP(int, getsockopt, (int, int, int, void *, socklen_t *));
SEI_WRAP(int, setsockopt, (int, int, int, const void *, socklen_t));
SEI_WRAP(int, epoll_ctl, (int, int, int, struct epoll_event *));
SEI_WRAP(int, fcntl, (int, int, ...));
SEI_WRAP(int, ioctl, (int, unsigned long, ...));
SEI_WRAP(int, dup, (int));
SEI_WRAP(ssize_t, recv, (int, void *, size_t, int));
SEI_WRAP(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *, socklen_t *));
SEI_WRAP(ssize_t, recvmsg, (int, struct msghdr *, int));
SEI_WRAP(ssize_t, read, (int, void *, size_t));
SEI_WRAP(ssize_t, pread, (int, void *, size_t, off_t));
SEI_WRAP(int, open, (const char *, int, ...));
SEI_WRAP(int, openat, (int, const char *, int, ...));
SEI_WRAP(int, creat, (const char *, mode_t));
SEI_WRAP(int, mkstemp, (char *));
SEI_WRAP(int, mkostemp, (char *, int));
SEI_WRAP(int, flock, (int, int));
SEI_WRAP(off_t, lseek, (int, off_t, int));
SEI_WRAP(int, stat, (const char *, struct stat *));
SEI_WRAP(int, lstat, (const char *, struct stat *));
SEI_WRAP(int, fstat, (int, struct stat *));
SEI_WRAP(int, fstatat, (int, const char *, struct stat *, int));
SEI_WRAP(int, access, (const char *, int));
SEI_WRAP(ssize_t, readlink, (const char *, char *, size_t));
SEI_WRAP(char *, realpath, (const char *, char *));
SEI_WRAP(char *, getcwd, (char *, size_t));
SEI_WRAP(int, mkdir, (const char *, mode_t));
SEI_WRAP(int, fchmod, (int, mode_t));
SEI_WRAP(int, fchown, (int, uid_t, gid_t));
SEI_WRAP(DIR *, opendir, (const char *));
SEI_WRAP(struct dirent *, readdir, (DIR *));
SEI_WRAP(FILE *, fopen, (const char *, const char *));
SEI_WRAP(FILE *, fdopen, (int, const char *));
SEI_WRAP(size_t, fread, (void *, size_t, size_t, FILE *));
SEI_WRAP(char *, fgets, (char *, int, FILE *));
SEI_WRAP(int, getc, (FILE *));
SEI_WRAP(int, fgetc, (FILE *));
SEI_WRAP(int, ungetc, (int, FILE *));
SEI_WRAP(int, feof, (FILE *));
SEI_WRAP(int, ferror, (FILE *));
SEI_WRAP(void, clearerr, (FILE *));
SEI_WRAP(int, fseek, (FILE *, long, int));
SEI_WRAP(int, fseeko, (FILE *, off_t, int));
SEI_WRAP(long, ftell, (FILE *));
SEI_WRAP(off_t, ftello, (FILE *));
SEI_WRAP(void, rewind, (FILE *));
SEI_WRAP(void *, pthread_getspecific, (pthread_key_t));
SEI_WRAP(int, pthread_setspecific, (pthread_key_t, const void *));

/* Deferred: they happen once, after both runs agree. They return as if they had succeeded; a change of a file that
 * fails then ends the process. */
SEI_WRAP(ssize_t, send, (int, const void *, size_t, int));
SEI_WRAP(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t));
SEI_WRAP(ssize_t, sendmsg, (int, const struct msghdr *, int));
SEI_WRAP(ssize_t, write, (int, const void *, size_t));
SEI_WRAP(ssize_t, writev, (int, const struct iovec *, int));
SEI_WRAP(ssize_t, pwrite, (int, const void *, size_t, off_t));
SEI_WRAP(int, ftruncate, (int, off_t));
SEI_WRAP(int, truncate, (const char *, off_t));
SEI_WRAP(int, fsync, (int));
SEI_WRAP(int, fdatasync, (int));
SEI_WRAP(int, rename, (const char *, const char *));
SEI_WRAP(int, unlink, (const char *));
SEI_WRAP(int, rmdir, (const char *));
SEI_WRAP(int, link, (const char *, const char *));
SEI_WRAP(int, symlink, (const char *, const char *));
SEI_WRAP(int, chmod, (const char *, mode_t));
SEI_WRAP(int, chown, (const char *, uid_t, gid_t));
SEI_WRAP(int, close, (int));
SEI_WRAP(int, closedir, (DIR *));
SEI_WRAP(int, shutdown, (int, int));
SEI_WRAP(void, freeaddrinfo, (struct addrinfo *));
SEI_WRAP(void, freeifaddrs, (struct ifaddrs *));
SEI_WRAP(int, printf, (const char *, ...));
SEI_WRAP(int, vprintf, (const char *, va_list));
SEI_WRAP(int, fprintf, (FILE *, const char *, ...));
SEI_WRAP(int, vfprintf, (FILE *, const char *, va_list));
SEI_WRAP(int, fputs, (const char *, FILE *));
SEI_WRAP(size_t, fwrite, (const void *, size_t, size_t, FILE *));
SEI_WRAP(int, puts, (const char *));
SEI_WRAP(int, fputc, (int, FILE *));
SEI_WRAP(int, putc, (int, FILE *));
SEI_WRAP(int, putchar, (int));
SEI_WRAP(int, fflush, (FILE *));
SEI_WRAP(int, fclose, (FILE *));
SEI_WRAP(void, perror, (const char *));
SEI_WRAP(void, syslog, (int, const char *, ...));
SEI_WRAP(void, vsyslog, (int, const char *, va_list));
SEI_WRAP(int, pthread_cond_signal, (pthread_cond_t *));
SEI_WRAP(int, pthread_cond_broadcast, (pthread_cond_t *));

/* Locks: taken in the first run, held until both runs agree. */
SEI_WRAP(int, pthread_mutex_lock, (pthread_mutex_t *));
SEI_WRAP(int, pthread_mutex_trylock, (pthread_mutex_t *));
SEI_WRAP(int, pthread_mutex_unlock, (pthread_mutex_t *));
/* For reading as for writing: one handler has it at a time. A spinlock's type is volatile, and GCC accepts no address
 * of a volatile variable in a handler: pass a pointer that was made outside. */
SEI_WRAP(int, pthread_rwlock_rdlock, (pthread_rwlock_t *));
SEI_WRAP(int, pthread_rwlock_wrlock, (pthread_rwlock_t *));
SEI_WRAP(int, pthread_rwlock_tryrdlock, (pthread_rwlock_t *));
SEI_WRAP(int, pthread_rwlock_trywrlock, (pthread_rwlock_t *));
SEI_WRAP(int, pthread_rwlock_unlock, (pthread_rwlock_t *));
SEI_WRAP(int, pthread_spin_lock, (pthread_spinlock_t *));
SEI_WRAP(int, pthread_spin_trylock, (pthread_spinlock_t *));
SEI_WRAP(int, pthread_spin_unlock, (pthread_spinlock_t *));

/* Refused: the process ends with the function's name when a handler gets there. */
SEI_WRAP(int, pthread_cond_wait, (pthread_cond_t *, pthread_mutex_t *));
SEI_WRAP(int, pthread_cond_timedwait, (pthread_cond_t *, pthread_mutex_t *, const struct timespec *));
SEI_WRAP(int, pthread_create, (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *));
SEI_WRAP(pid_t, fork, (void));
/* With NDEBUG the header does not declare it. */
extern void __assert_fail(const char *, const char *, unsigned, const char *) __attribute__((noreturn, nothrow));
void sei_call_exit(int) __attribute__((noreturn, transaction_pure, transaction_wrap(exit)));
void sei_call___assert_fail(const char *, const char *, unsigned, const char *)
    __attribute__((noreturn, transaction_pure, transaction_wrap(__assert_fail)));

#endif
#endif
