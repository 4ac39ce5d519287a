/* Files in handlers. What a handler needs the result of at once is done in the first run and recorded: open, pread,
 * stat. What others see is deferred until both runs agree, and the program is told that it succeeds; if it fails then,
 * the process ends, as after a crash, before a reply that relies on it leaves. A handler that asks for what it has
 * deferred itself is refused: the answer would be that from before.
 */
#include <sei/shim.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

/* Paths are told from descriptors and streams in the first argument of a deferred call. */
#define PATH_KEY ((uint64_t)1 << 63)

static uint64_t key_of(const char *path) { return PATH_KEY | sei_crc(0, path, strlen(path)); }

/* Something that this handler has deferred would change the answer. */
void sei_shim_settled(uint64_t key, const char *name) {
    if (sei_rt_waits(key)) {
        char text[100];
        snprintf(text, sizeof text, "%s, of what the same handler changes once both runs agree,", name);
        sei_rt_refuse(text);
    }
}

/* A deferred operation on this descriptor has failed. What is no file is lost as a packet is. */
void sei_shim_failed(int fd, const char *name) {
    struct stat known;
    int error = errno;
    if (fstat(fd, &known) == 0 && S_ISREG(known.st_mode)) {
        errno = error;
        sei_rt_failed(name);
    }
}

/* ---- Descriptors. ---- */

static void do_truncate(uint64_t fd, uint64_t length, uint64_t file, const uint8_t *bytes, size_t unused) {
    (void)file, (void)bytes, (void)unused;
    if (ftruncate((int)fd, (off_t)length) != 0) {
        sei_shim_failed((int)fd, "ftruncate");
    }
}

static int open_first(int folder, const char *known, int flags, mode_t mode) {
    const char *path = sei_rt_read_at(known);
    sei_shim_settled(key_of(path), "open");
    int fd = sei_rt_runs_first() ? openat(folder, path, flags & ~O_TRUNC, mode) : 0;
    fd = (int)sei_rt_recorded("open", TAKEN, (uint64_t)folder, (uint64_t)flags << 32 | mode, key_of(path), fd);
    if (fd >= 0 && flags & O_TRUNC) {
        sei_rt_defer(do_truncate, (uint64_t)fd, 0, 0, NULL, 0);
    }
    return fd;
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

int sei_call_open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    int fd = open_first(AT_FDCWD, path, flags, mode_of(flags, arguments));
    va_end(arguments);
    return fd;
}

int sei_call_openat(int folder, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    int fd = open_first(folder, path, flags, mode_of(flags, arguments));
    va_end(arguments);
    return fd;
}

int sei_call_creat(const char *path, mode_t mode) {
    return open_first(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int sei_call_mkostemp(char *template, int flags) {
    size_t length = strlen(sei_rt_read_at(template));
    char *at = sei_rt_will_write(template, length);
    int fd = sei_rt_runs_first() ? mkostemp(at, flags) : 0;
    fd = (int)sei_rt_recorded("mkostemp", TAKEN, POINTER(template), (uint64_t)flags, length, fd);
    sei_rt_bytes(template, 0, length);
    return fd;
}

int sei_call_mkstemp(char *template) { return sei_call_mkostemp(template, 0); }

int sei_call_dup(int fd) {
    int result = sei_rt_runs_first() ? dup(fd) : 0;
    return (int)sei_rt_recorded("dup", TAKEN, (uint64_t)fd, 0, 0, result);
}

int sei_call_flock(int fd, int operation) {
    int result = sei_rt_runs_first() ? flock(fd, operation) : 0;
    return (int)sei_rt_recorded("flock", TAKEN, (uint64_t)fd, (uint64_t)operation, 0, result);
}

ssize_t sei_call_pread(int fd, void *to, size_t n, off_t offset) {
    sei_shim_settled((uint64_t)fd, "pread");
    void *at = sei_rt_will_write(to, n);
    ssize_t result = sei_rt_runs_first() ? pread(fd, at, n, offset) : 0;
    result = sei_rt_recorded("pread", RECORDED, (uint64_t)fd, n, (uint64_t)offset, result);
    sei_rt_bytes(to, 0, result > 0 ? (size_t)result : 0);
    return result;
}

static void do_pwrite(uint64_t fd, uint64_t offset, uint64_t unused, const uint8_t *bytes, size_t length) {
    (void)unused;
    while (length > 0) {
        ssize_t written = pwrite((int)fd, bytes, length, (off_t)offset);
        if (written > 0) {
            bytes += written, offset += (uint64_t)written, length -= (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            sei_shim_failed((int)fd, "pwrite");
            return;
        }
    }
}

/* Whether a deferred call on this descriptor may be told to succeed: it is open, and for writing. */
static int is_writable(int fd, const char *name) {
    int flags = 0;
    if (sei_rt_runs_first()) {
        flags = fcntl(fd, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) {
            errno = EBADF;
            flags = -1;
        }
    }
    return sei_rt_recorded(name, RECORDED, (uint64_t)fd, 0, 0, flags < 0 ? -1 : 0) == 0;
}

ssize_t sei_call_pwrite(int fd, const void *from, size_t n, off_t offset) {
    if (!is_writable(fd, "pwrite")) {
        return -1;
    }
    sei_rt_defer(do_pwrite, (uint64_t)fd, (uint64_t)offset, 0, from, n);
    return (ssize_t)n;
}

int sei_call_ftruncate(int fd, off_t length) {
    if (!is_writable(fd, "ftruncate")) {
        return -1;
    }
    sei_rt_defer(do_truncate, (uint64_t)fd, (uint64_t)length, 0, NULL, 0);
    return 0;
}

static void do_sync(uint64_t fd, uint64_t data_only, uint64_t unused, const uint8_t *bytes, size_t length) {
    (void)unused, (void)bytes, (void)length;
    if ((data_only ? fdatasync((int)fd) : fsync((int)fd)) != 0) {
        sei_shim_failed((int)fd, "fsync");
    }
}

int sei_call_fsync(int fd) {
    sei_rt_defer(do_sync, (uint64_t)fd, 0, 0, NULL, 0);
    return 0;
}

int sei_call_fdatasync(int fd) {
    sei_rt_defer(do_sync, (uint64_t)fd, 1, 0, NULL, 0);
    return 0;
}

static void do_seek(uint64_t fd, uint64_t offset, uint64_t unused, const uint8_t *bytes, size_t length) {
    (void)unused, (void)bytes, (void)length;
    if (lseek((int)fd, (off_t)offset, SEEK_SET) < 0) {
        sei_shim_failed((int)fd, "lseek");
    }
}

off_t sei_call_lseek(int fd, off_t offset, int whence) {
    if (whence == SEEK_SET && offset >= 0 && sei_rt_waits((uint64_t)fd)) {
        sei_rt_defer(do_seek, (uint64_t)fd, (uint64_t)offset, 0, NULL, 0);
        return offset;
    }
    sei_shim_settled((uint64_t)fd, "lseek");
    off_t result = sei_rt_runs_first() ? lseek(fd, offset, whence) : 0;
    return sei_rt_recorded("lseek", TAKEN, (uint64_t)fd, (uint64_t)offset, (uint64_t)whence, result);
}

/* ---- What a file is. ---- */

static int give_stat(struct stat *to, struct stat known, int result) {
    if (result == 0) {
        sei_rt_bytes(&known, 0, sizeof known);
        memcpy(sei_rt_will_write(to, sizeof known), &known, sizeof known);
    }
    return result;
}

int sei_call_fstat(int fd, struct stat *to) {
    struct stat known = {0};
    sei_shim_settled((uint64_t)fd, "fstat");
    int result = sei_rt_runs_first() ? fstat(fd, &known) : 0;
    result = (int)sei_rt_recorded("fstat", RECORDED, (uint64_t)fd, POINTER(to), 0, result);
    return give_stat(to, known, result);
}

int sei_call_fstatat(int folder, const char *path, struct stat *to, int flags) {
    struct stat known = {0};
    const char *at = sei_rt_read_at(path);
    sei_shim_settled(key_of(at), "stat");
    int result = sei_rt_runs_first() ? fstatat(folder, at, &known, flags) : 0;
    result = (int)sei_rt_recorded("stat", RECORDED, (uint64_t)folder << 32 | (uint32_t)flags, POINTER(to), key_of(at),
                                  result);
    return give_stat(to, known, result);
}

int sei_call_stat(const char *path, struct stat *to) { return sei_call_fstatat(AT_FDCWD, path, to, 0); }
int sei_call_lstat(const char *path, struct stat *to) {
    return sei_call_fstatat(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}

int sei_call_access(const char *path, int mode) {
    const char *at = sei_rt_read_at(path);
    sei_shim_settled(key_of(at), "access");
    int result = sei_rt_runs_first() ? access(at, mode) : 0;
    return (int)sei_rt_recorded("access", RECORDED, (uint64_t)mode, 0, key_of(at), result);
}

/* A text that a call returned, of `length` bytes. */
static void give_text(char *to, const char *text, size_t length) {
    char *at = sei_rt_will_write(to, length);
    memcpy(at, text, sei_rt_runs_first() ? length : 0);
    sei_rt_bytes(to, 0, length);
}

ssize_t sei_call_readlink(const char *path, char *to, size_t n) {
    char text[PATH_MAX];
    const char *at = sei_rt_read_at(path);
    sei_shim_settled(key_of(at), "readlink");
    ssize_t result = sei_rt_runs_first() ? readlink(at, text, n < sizeof text ? n : sizeof text) : 0;
    result = sei_rt_recorded("readlink", RECORDED, POINTER(to), n, key_of(at), result);
    if (result > 0) {
        give_text(to, text, (size_t)result);
    }
    return result;
}

char *sei_call_realpath(const char *path, char *to) {
    char text[PATH_MAX] = "";
    const char *at = sei_rt_read_at(path);
    sei_shim_settled(key_of(at), "realpath");
    const char *found = sei_rt_runs_first() ? realpath(at, text) : NULL;
    int64_t length = found ? (int64_t)strlen(text) + 1 : -1;
    length = sei_rt_recorded("realpath", RECORDED, POINTER(to), 0, key_of(at), length);
    if (length < 0) {
        return NULL;
    }
    sei_rt_bytes(text, 0, (size_t)length);
    char *made = to ? to : _ITM_malloc((size_t)length);
    if (made) {
        memcpy(sei_rt_will_write(made, (size_t)length), text, (size_t)length);
    }
    return made;
}

char *sei_call_getcwd(char *to, size_t n) {
    char text[PATH_MAX] = "";
    const char *found = sei_rt_runs_first() ? getcwd(text, n && n < sizeof text ? n : sizeof text) : NULL;
    int64_t length = found ? (int64_t)strlen(text) + 1 : -1;
    length = sei_rt_recorded("getcwd", RECORDED, POINTER(to), n, 0, length);
    if (length < 0) {
        return NULL;
    }
    sei_rt_bytes(text, 0, (size_t)length);
    char *made = to ? to : _ITM_malloc(n ? n : (size_t)length);
    if (made) {
        memcpy(sei_rt_will_write(made, (size_t)length), text, (size_t)length);
    }
    return made;
}

/* ---- Names. They are told to succeed if the name is there. ---- */

/* What the deferred call is: the same number in both runs. */
enum change { UNLINK, RMDIR, RENAME, LINK, SYMLINK, CHMOD, CHOWN, TRUNCATE };

static void do_change(uint64_t key, uint64_t what, uint64_t second_key, const uint8_t *bytes, size_t length) {
    (void)key, (void)second_key, (void)length;
    const char *path = (const char *)bytes + 16, *second = path + strlen(path) + 1;
    uint64_t numbers[2];
    memcpy(numbers, bytes, sizeof numbers);
    int result = -1;
    switch ((enum change)what) {
    case UNLINK: result = unlink(path); break;
    case RMDIR: result = rmdir(path); break;
    case RENAME: result = rename(path, second); break;
    case LINK: result = link(path, second); break;
    case SYMLINK: result = symlink(path, second); break;
    case CHMOD: result = chmod(path, (mode_t)numbers[0]); break;
    case CHOWN: result = chown(path, (uid_t)numbers[0], (gid_t)numbers[1]); break;
    case TRUNCATE: result = truncate(path, (off_t)numbers[0]); break;
    }
    static const char *const names[] = {"unlink", "rmdir", "rename", "link", "symlink", "chmod", "chown", "truncate"};
    if (result != 0) {
        sei_rt_failed(names[what]);
    }
}

/* Whether the name is one that the call can work on. */
static int looked_up(const char *path, enum change what) {
    struct stat known;
    if (lstat(path, &known) != 0) {
        return -1;
    }
    bool is_folder = S_ISDIR(known.st_mode);
    if (is_folder ? what == UNLINK : what == RMDIR) {
        errno = is_folder ? EISDIR : ENOTDIR;
        return -1;
    }
    return 0;
}

static int change(enum change what, const char *known, const char *known_second, uint64_t a, uint64_t b) {
    const char *path = sei_rt_read_at(known), *second = known_second ? sei_rt_read_at(known_second) : "";
    uint64_t key = key_of(path), second_key = known_second ? key_of(second) : 0;
    sei_shim_settled(key, "a change of its name");
    if (known_second) {
        sei_shim_settled(second_key, "a change of its name");
    }
    int result = sei_rt_runs_first() && what != SYMLINK ? looked_up(path, what) : 0;
    result = (int)sei_rt_recorded("change of a name", RECORDED, what, second_key, key, result);
    if (result != 0) {
        return result;
    }
    size_t length = 16 + strlen(path) + 1 + strlen(second) + 1;
    uint64_t numbers[2] = {a, b};
    char bytes[16 + 2 * PATH_MAX];
    if (length > sizeof bytes) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(bytes, numbers, sizeof numbers);
    strcpy(bytes + 16, path);
    strcpy(bytes + 16 + strlen(path) + 1, second);
    sei_rt_defer(do_change, key, what, second_key, bytes, length);
    return 0;
}

int sei_call_unlink(const char *path) { return change(UNLINK, path, NULL, 0, 0); }
int sei_call_rmdir(const char *path) { return change(RMDIR, path, NULL, 0, 0); }
int sei_call_rename(const char *from, const char *to) { return change(RENAME, from, to, 0, 0); }
int sei_call_link(const char *from, const char *to) { return change(LINK, from, to, 0, 0); }
int sei_call_symlink(const char *from, const char *to) { return change(SYMLINK, from, to, 0, 0); }
int sei_call_chmod(const char *path, mode_t mode) { return change(CHMOD, path, NULL, mode, 0); }
int sei_call_chown(const char *path, uid_t user, gid_t group) { return change(CHOWN, path, NULL, user, group); }
int sei_call_truncate(const char *path, off_t length) { return change(TRUNCATE, path, NULL, (uint64_t)length, 0); }

int sei_call_mkdir(const char *path, mode_t mode) {
    const char *at = sei_rt_read_at(path);
    sei_shim_settled(key_of(at), "mkdir");
    int result = sei_rt_runs_first() ? mkdir(at, mode) : 0;
    return (int)sei_rt_recorded("mkdir", TAKEN, mode, 0, key_of(at), result);
}

int sei_call_fchmod(int fd, mode_t mode) {
    int result = sei_rt_runs_first() ? fchmod(fd, mode) : 0;
    return (int)sei_rt_recorded("fchmod", RECORDED, (uint64_t)fd, mode, 0, result);
}

int sei_call_fchown(int fd, uid_t user, gid_t group) {
    int result = sei_rt_runs_first() ? fchown(fd, user, group) : 0;
    return (int)sei_rt_recorded("fchown", RECORDED, (uint64_t)fd, user, group, result);
}

/* ---- Folders. The entry is this library's, so that it is undone and given again as other memory is. ---- */

static __thread struct dirent entry;

DIR *sei_call_opendir(const char *path) {
    const char *at = sei_rt_read_at(path);
    sei_shim_settled(key_of(at), "opendir");
    DIR *folder = sei_rt_runs_first() ? opendir(at) : NULL;
    return (DIR *)(uintptr_t)sei_rt_recorded("opendir", TAKEN, key_of(at), 0, 0, (int64_t)POINTER(folder));
}

struct dirent *sei_call_readdir(DIR *folder) {
    struct dirent *found = sei_rt_runs_first() ? readdir(folder) : NULL;
    int64_t length = found ? found->d_reclen : 0;
    length = sei_rt_recorded("readdir", TAKEN, POINTER(folder), 0, 0, length);
    if (length == 0) {
        return NULL;
    }
    give_text((char *)&entry, (const char *)found, (size_t)length);
    return &entry;
}

static void do_closedir(uint64_t folder, uint64_t unused, uint64_t unused_too, const uint8_t *bytes, size_t length) {
    (void)unused, (void)unused_too, (void)bytes, (void)length;
    closedir((DIR *)(uintptr_t)folder);
}

int sei_call_closedir(DIR *folder) {
    sei_rt_defer(do_closedir, POINTER(folder), 0, 0, NULL, 0);
    return 0;
}
