/* Calls of the C library in handlers: each scenario prints what it finds, and the program without protection, which is
 * the same source, prints the same.
 */
#include "scenario.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

static char folder[64], path[100], other[100], bytes[256];
static int fd, error;
static long result, results[8];
static struct stat known;

static void in_a_folder(void) {
    strcpy(folder, "/tmp/sei-calls-XXXXXX");
    assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a", folder);
    snprintf(other, sizeof other, "%s/b", folder);
}

static void print_file(const char *name) {
    char text[300] = "";
    int file = open(name, O_RDONLY);
    ssize_t n = file < 0 ? -1 : read(file, text, sizeof text - 1);
    printf(" [%zd %s]", n, text);
    if (file >= 0) close(file);
}

static void end_of_folder(void) {
    unlink(path);
    unlink(other);
    rmdir(folder);
    printf("\n");
}

static void files(void) {
    in_a_folder();
    HANDLER(
        fd = open(path, O_CREAT | O_RDWR | O_EXCL, 0600);
        result = write(fd, "hello, world", 12);
        results[0] = pwrite(fd, "HELLO", 5, 0);
        results[1] = fsync(fd);
    );
    printf("%ld %ld %ld", result, results[0], results[1]);
    print_file(path);
    HANDLER(result = pread(fd, bytes, 5, 7); results[0] = lseek(fd, 0, SEEK_END); fstat(fd, &known););
    printf(" %.5s %ld %ld %ld", bytes, result, results[0], (long)known.st_size);
    HANDLER(lseek(fd, 2, SEEK_SET); write(fd, "xx", 2); lseek(fd, 6, SEEK_SET); write(fd, "yy", 2););
    print_file(path);
    HANDLER(
        struct iovec pieces[2];
        pieces[0].iov_base = "one", pieces[0].iov_len = 3;
        pieces[1].iov_base = "two", pieces[1].iov_len = 3;
        result = writev(fd, pieces, 2);
        results[0] = ftruncate(fd, 14);
    );
    printf(" %ld %ld", result, results[0]);
    print_file(path);
    HANDLER(result = rename(path, other); results[0] = close(fd););
    printf(" %ld %ld %d", result, results[0], access(path, F_OK));
    print_file(other);
    HANDLER(result = unlink(path); error = errno; results[0] = open(path, O_RDONLY); results[1] = errno;);
    printf(" %ld %d %ld %ld", result, error == ENOENT, results[0], results[1]);
    HANDLER(fd = open(other, O_WRONLY | O_TRUNC); write(fd, "short", 5); close(fd););
    print_file(other);
    HANDLER(result = unlink(other); results[0] = rmdir(path); results[1] = errno;);
    printf(" %ld %ld %ld", result, results[0], results[1]);
    HANDLER(result = write(fd, "x", 1); error = errno; results[0] = pwrite(STDIN_FILENO + 100, "x", 1, 0););
    printf(" %ld", results[0]);
    end_of_folder();
}

static void names(void) {
    in_a_folder();
    HANDLER(
        result = mkdir(path, 0700);
        results[0] = mkdir(path, 0700);
        results[1] = errno;
        results[2] = stat(path, &known);
        results[3] = S_ISDIR(known.st_mode);
    );
    printf("%ld %ld %ld %ld %ld", result, results[0], results[1], results[2], results[3]);
    HANDLER(result = unlink(path); results[0] = errno; results[1] = symlink("target", other););
    printf(" %ld %ld %ld", result, results[0], results[1]);
    HANDLER(
        result = readlink(other, bytes, sizeof bytes);
        results[0] = lstat(other, &known);
        results[1] = S_ISLNK(known.st_mode);
        results[2] = chmod(path, 0500);
    );
    stat(path, &known);
    printf(" %.6s %ld %ld %ld %o", bytes, result, results[0], results[1], known.st_mode & 0777);
    static char real[4096];
    HANDLER(DIR *dir = opendir(folder); results[0] = 0; struct dirent *one;
            while ((one = readdir(dir)) != NULL) { results[0] += strlen(one->d_name); }
            closedir(dir); result = realpath(path, real) == real;);
    printf(" %ld %ld %d", results[0], result, strcmp(real, path));
    HANDLER(result = rmdir(path););
    printf(" %ld %d", result, access(path, F_OK));
    end_of_folder();
}

static FILE *file;

static void streams(void) {
    in_a_folder();
    HANDLER(
        file = fopen(path, "w+");
        result = fprintf(file, "%s %d\n", "line", 1);
        fputs("line two\n", file);
        fputc('x', file);
        putc('y', file);
        fwrite("\nz", 1, 2, file);
        fflush(file);
    );
    printf("%ld", result);
    print_file(path);
    static char line[100];
    HANDLER(rewind(file); result = fgets(line, sizeof line, file) == line; results[0] = getc(file);
            ungetc('L', file); results[1] = fread(bytes, 1, 9, file); results[2] = ftell(file);
            results[3] = feof(file););
    printf(" %s %ld %ld %ld %ld %.9s %ld", line, result, results[0], results[1], results[2], bytes, results[3]);
    HANDLER(fseek(file, 0, SEEK_END); result = getc(file); results[0] = feof(file) != 0; fclose(file););
    printf(" %ld %ld", result, results[0]);
    HANDLER(file = fopen("/nowhere/at/all", "r"); error = errno;);
    printf(" %d %d", file == NULL, error == ENOENT);
    end_of_folder();
}

static void prints(void) {
    fflush(stdout);
    HANDLER(result = printf("%s %d %.2f %c\n", "printed", 5, 2.5, 'c'); puts("put"); putchar('c'); putchar('\n');
            printf("no arguments\n"); printf("%s\n", "a text alone"); printf("x"); fputs("y\n", stdout););
    printf("%ld\n", result);
}

/* What arrives in the place of the system's log. */
static void system_log(void) {
    int ends[2];
    assert(pipe(ends) == 0 && dup2(ends[1], 2) == 2);
    openlog("sei-calls", LOG_PERROR, LOG_USER);
    HANDLER(syslog(LOG_DEBUG, "%s %d", "one line", 7););
    ssize_t n = read(ends[0], bytes, sizeof bytes - 1);
    bytes[n > 0 ? n : 0] = '\0';
    printf("%s", bytes);
    /* Priorities are small numbers, as descriptors are: the file is not the log. */
    fd = open("/proc/self/exe", O_RDONLY);
    HANDLER(syslog(fd, "%s", "another"); fflush(NULL); result = pread(fd, bytes, 4, 0); fstat(0, &known););
    printf("%ld %.3s\n", result, bytes + 1);
}

static char text[200], words[100];
static char *place;

static void scans(void) {
    static int numbers[4];
    static char word[20], set[20], three[4];
    static double real;
    static short small;
    HANDLER(result = sscanf("12 0x1f word abc] xyz 3.5 77 tail", "%d %i %19s %[^]]] %3c %lf %hd%n", &numbers[0],
                            &numbers[1], word, set, three, &real, &small, &numbers[2]););
    printf("%ld %d %d %s %s %.3s %.1f %d %d", result, numbers[0], numbers[1], word, set, three, real, small,
           numbers[2]);
    HANDLER(result = sscanf("5 x", "%d %d %d", &numbers[0], &numbers[1], &numbers[3]);
            results[0] = sscanf("", "%d", &numbers[3]); results[1] = sscanf("1 2 3", "%*d %d", &numbers[3]););
    printf(" %ld %d %d %ld %ld %d", result, numbers[0], numbers[1], results[0], results[1], numbers[3]);
    HANDLER(
        strcpy(text, ",a,,bc,d");
        strcpy(words, "");
        for (char *at = strtok_r(text, ",", &place); at; at = strtok_r(NULL, ",", &place)) {
            strcat(words, at);
            strcat(words, ";");
        }
        strcpy(text, "k=v;x");
        for (char *at = strtok(text, "=;"); at; at = strtok(NULL, "=;")) {
            strcat(words, at);
            strcat(words, ".");
        }
        strcpy(text, "p::q");
        place = text;
        for (char *at; (at = strsep(&place, ":")) != NULL;) {
            strcat(words, at);
            strcat(words, "/");
        }
    );
    printf(" %s", words);
    static char *end;
    HANDLER(real = strtod("2.5e3x", &end); result = *end; results[0] = (long)strtoumax("99", NULL, 10);
            results[1] = atoll("-8"); results[2] = (long)(atof("1.5") * 2); results[3] = (long)strtof("0.5", NULL););
    printf(" %.0f %c %ld %ld %ld %ld\n", real, (int)result, results[0], results[1], results[2], results[3]);
}

struct pair { int key, place; };
static int compared;

SEI_COMPARE static int by_key(const void *a, const void *b) {
    compared++;
    return ((const struct pair *)a)->key - ((const struct pair *)b)->key;
}

static void sorts(void) {
    static struct pair pairs[100];
    static struct pair wanted = {7, 0};
    static const struct pair *found, *missing;
    for (int i = 0; i < 100; i++) {
        pairs[i] = (struct pair){i * 37 % 13, i};
    }
    HANDLER(qsort(pairs, 100, sizeof *pairs, by_key););
    int is_sorted = compared > 0;
    for (int i = 1; i < 100; i++) {
        is_sorted &= pairs[i - 1].key < pairs[i].key ||
                     (pairs[i - 1].key == pairs[i].key && pairs[i - 1].place < pairs[i].place);
    }
    HANDLER(found = bsearch(&wanted, pairs, 100, sizeof *pairs, by_key); wanted.key = 50;
            missing = bsearch(&wanted, pairs, 100, sizeof *pairs, by_key););
    printf("sorted %d found %d missing %d\n", is_sorted, found->key, missing == NULL);
}

static void addresses(void) {
    static struct in_addr four;
    static struct in6_addr six;
    static char copy[64];
    HANDLER(
        result = inet_pton(AF_INET, "10.1.2.3", &four);
        strcpy(copy, inet_ntoa(four));
        results[0] = inet_pton(AF_INET6, "fe80::1", &six);
        strcpy(bytes, inet_ntop(AF_INET6, &six, text, sizeof text));
        results[1] = inet_aton("1.2.3", &four);
        results[2] = inet_pton(AF_INET, "x", &four);
        results[3] = inet_ntop(AF_INET, &four, text, 3) == NULL;
        results[4] = errno;
    );
    printf("%ld %s %ld %s %ld %ld %ld %ld", result, copy, results[0], bytes, results[1], results[2], results[3],
           results[4]);
    static struct addrinfo hints, *list;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    HANDLER(result = getaddrinfo("127.0.0.1", "80", &hints, &list);
            results[0] = ntohs(((struct sockaddr_in *)list->ai_addr)->sin_port);
            results[1] = getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof text, bytes, sizeof bytes,
                                     NI_NUMERICHOST | NI_NUMERICSERV);
            freeaddrinfo(list); results[2] = getaddrinfo("no number", NULL, &hints, &list););
    printf(" %ld %ld %ld %s %s %s\n", result, results[0], results[1], text, bytes, gai_strerror((int)results[2]));
}

static void sockets(void) {
    static int ends[2], accepted, value, epoll;
    static socklen_t length = sizeof value;
    static struct sockaddr_in address;
    static socklen_t address_length = sizeof address;
    static struct msghdr message;
    static struct iovec pieces[2];
    static char one[4], two[40];
    static struct epoll_event event;
    address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    assert(bind(listening, (void *)&address, sizeof address) == 0);
    assert(getsockname(listening, (void *)&address, &address_length) == 0);
    HANDLER(result = listen(listening, 4););
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert(connect(ends[0], (void *)&address, sizeof address) == 0);
    HANDLER(accepted = accept4(listening, NULL, NULL, SOCK_NONBLOCK); value = 1;
            results[0] = setsockopt(accepted, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value); value = 0;
            results[1] = getsockopt(accepted, SOL_SOCKET, SO_KEEPALIVE, &value, &length);
            results[2] = fcntl(accepted, F_GETFL) & O_NONBLOCK;);
    printf("%ld %ld %ld %d %u %d", result, results[0], results[1], value, length, results[2] != 0);
    epoll = epoll_create1(0);
    HANDLER(event.events = EPOLLIN; event.data.fd = 7; result = epoll_ctl(epoll, EPOLL_CTL_ADD, accepted, &event);
            results[0] = epoll_ctl(epoll, EPOLL_CTL_ADD, accepted, &event); results[1] = errno;);
    printf(" %ld %ld %d", result, results[0], results[1] == EEXIST);
    assert(write(ends[0], "abcdefghij", 10) == 10);
    printf(" %d", epoll_wait(epoll, &event, 1, 1000));
    pieces[0].iov_base = one, pieces[0].iov_len = sizeof one, pieces[1].iov_base = two, pieces[1].iov_len = sizeof two;
    message.msg_iov = pieces, message.msg_iovlen = 2;
    HANDLER(results[0] = ioctl(accepted, FIONREAD, &value); result = recvmsg(accepted, &message, 0););
    printf(" %ld %d %ld %.4s %.6s", results[0], value, result, one, two);
    HANDLER(write(accepted, "bye", 3); result = shutdown(accepted, SHUT_WR););
    ssize_t n = read(ends[0], bytes, sizeof bytes);
    printf(" %ld %.3s %zd %zd\n", result, bytes, n, read(ends[0], bytes, sizeof bytes));
}

static void times(void) {
    static struct tm parts, again;
    static time_t at = 1000000000, back;
    static struct rusage used;
    setenv("TZ", "UTC", 1);
    HANDLER(gmtime_r(&at, &parts); result = (long)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
            parts.tm_mday += 40; back = mktime(&parts); localtime_r(&back, &again); results[0] = timegm(&again);
            strcpy(words, ctime_r(&at, bytes)); results[1] = gmtime(&at)->tm_year; results[2] = localtime(&at)->tm_min;
            results[3] = (long)strftime(bytes, 3, "%Y", &parts);
            results[4] = strptime("2001-02-03", "%Y-%m-%d", &again) != NULL;
            results[5] = getrusage(RUSAGE_SELF, &used););
    printf("%ld %s %ld %ld %.24s %ld %ld %ld %ld %d %ld %d\n", result, text, (long)back, results[0], words, results[1],
           results[2], results[3], results[4], again.tm_mon, results[5], used.ru_maxrss > 0);
}

static void texts(void) {
    static char *made;
    static struct utsname machine;
    HANDLER(strcpy(text, strerror(ENOENT)); strcpy(bytes, strerror_r(EAGAIN, words, sizeof words));
            result = asprintf(&made, "%s-%d", "made", 12); results[0] = getppid() > 0;
            results[1] = mempcpy(folder, "abc", 4) == folder + 4; explicit_bzero(folder, 1);
            results[2] = uname(&machine); results[3] = gethostname(path, sizeof path);
            results[3] |= strcmp(path, machine.nodename););
    printf("%s %s %ld %s %ld %ld %d %c %ld %ld\n", text, bytes, result, made, results[0], results[1], folder[0],
           folder[1], results[2], results[3]);
    free(made);
}

static pthread_rwlock_t read_write = PTHREAD_RWLOCK_INITIALIZER;
/* Its type is volatile, so a handler takes it by a pointer. */
static pthread_spinlock_t spinlock, *spin = &spinlock;
static long by_read_write, by_spin;

static void *count_with_locks(void *unused) {
    for (int i = 0; i < 2000; i++) {
        HANDLER(pthread_rwlock_wrlock(&read_write); by_read_write++; pthread_rwlock_unlock(&read_write););
        HANDLER(pthread_spin_lock(spin); by_spin++; pthread_spin_unlock(spin););
        HANDLER(pthread_rwlock_wrlock(&read_write); pthread_spin_lock(spin); by_spin++; by_read_write++;
                pthread_spin_unlock(spin); pthread_rwlock_unlock(&read_write););
    }
    return unused;
}

static void locks(void) {
    pthread_t threads[2];
    pthread_spin_init(spin, 0);
    HANDLER(result = pthread_rwlock_tryrdlock(&read_write); results[0] = pthread_spin_trylock(spin);
            pthread_spin_unlock(spin); pthread_rwlock_unlock(&read_write);
            results[2] = pthread_rwlock_rdlock(&read_write); pthread_rwlock_unlock(&read_write););
    results[1] = pthread_rwlock_trywrlock(&read_write);
    pthread_rwlock_unlock(&read_write);
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, count_with_locks, NULL);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%ld %ld %ld %ld %ld %ld\n", result, results[0], results[1], results[2], by_read_write, by_spin);
}

/* The handler is told that all is written; the file may have no more than 4 bytes. */
static void full_file(void) {
    struct rlimit limit = {4, 4};
    in_a_folder();
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    unlink(path);
    rmdir(folder);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    HANDLER(result = write(fd, "more than four", 14); write(STDOUT_FILENO, "a reply\n", 8););
    printf("told %ld\n", result);
}

static void reads_what_it_writes(void) {
    in_a_folder();
    fd = open(path, O_CREAT | O_RDWR, 0600);
    unlink(path);
    rmdir(folder);
    HANDLER(pwrite(fd, "x", 1, 0); pread(fd, bytes, 1, 0););
}

static void print_names(const struct sei_report *report) {
    (void)report;
    printf("there %d, moved %d, %ld bytes", access(path, F_OK) == 0, access(other, F_OK) == 0,
           stat(path, &known) == 0 ? (long)known.st_size : -1);
    end_of_folder();
    fflush(stdout);
}

static void nothing_changes_before_v(void) {
    in_a_folder();
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert(write(fd, "12345", 5) == 5);
    sei_on_detect(print_names);
    HANDLER(fd = open(path, O_WRONLY | O_TRUNC); write(fd, "other", 5); pwrite(fd, "more", 4, 10); ftruncate(fd, 30);
            rename(path, other); if (this_run() == 2) result++;);
    printf("left\n");
}

SCENARIOS({"files", files}, {"names", names}, {"streams", streams}, {"prints", prints}, {"system_log", system_log},
          {"scans", scans}, {"sorts", sorts}, {"addresses", addresses}, {"sockets", sockets}, {"times", times},
          {"texts", texts}, {"locks", locks}, {"full_file", full_file},
          {"reads_what_it_writes", reads_what_it_writes}, {"nothing_changes_before_v", nothing_changes_before_v})
