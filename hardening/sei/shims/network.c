/* Sockets, events and addresses in handlers: their results are needed at once, so that they are recorded. */
#include <sei/shim.h>

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Longest value of a socket's option, and of control data beside a message. */
#define OPTION_BYTES 512

/* ---- Sockets and events. ---- */

int sei_call_setsockopt(int fd, int level, int name, const void *value, socklen_t length) {
    const void *at = sei_rt_read_at(value);
    int result = sei_rt_runs_first() ? setsockopt(fd, level, name, at, length) : 0;
    return (int)sei_rt_recorded("setsockopt", RECORDED, (uint64_t)fd, (uint64_t)level << 32 | (uint32_t)name,
                                (uint64_t)length << 32 | sei_crc(0, at, length), result);
}

int sei_call_getsockopt(int fd, int level, int name, void *to, socklen_t *length) {
    char value[OPTION_BYTES] = "";
    socklen_t got = *(const socklen_t *)sei_rt_read_at(length);
    got = got < sizeof value ? got : sizeof value;
    int result = sei_rt_runs_first() ? getsockopt(fd, level, name, value, &got) : 0;
    result = (int)sei_rt_recorded("getsockopt", RECORDED, (uint64_t)fd, (uint64_t)level << 32 | (uint32_t)name,
                                  POINTER(to), result);
    if (result == 0) {
        sei_rt_bytes(&got, 0, sizeof got);
        sei_rt_bytes(value, sizeof got, got);
        memcpy(sei_rt_will_write(to, got), value, got);
        memcpy(sei_rt_will_write(length, sizeof got), &got, sizeof got);
    }
    return result;
}

static void do_shutdown(uint64_t fd, uint64_t how, uint64_t unused, const uint8_t *bytes, size_t length) {
    (void)unused, (void)bytes, (void)length;
    shutdown((int)fd, (int)how);
}

int sei_call_shutdown(int fd, int how) {
    sei_rt_defer(do_shutdown, (uint64_t)fd, (uint64_t)how, 0, NULL, 0);
    return 0;
}

int sei_call_listen(int fd, int backlog) {
    int result = sei_rt_runs_first() ? listen(fd, backlog) : 0;
    return (int)sei_rt_recorded("listen", TAKEN, (uint64_t)fd, (uint64_t)backlog, 0, result);
}

int sei_call_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    struct epoll_event known = {0};
    if (event) {
        memcpy(&known, sei_rt_read_at(event), sizeof known);
    }
    int result = sei_rt_runs_first() ? epoll_ctl(epoll, operation, fd, event ? &known : NULL) : 0;
    return (int)sei_rt_recorded("epoll_ctl", TAKEN, (uint64_t)epoll << 32 | (uint32_t)fd,
                                (uint64_t)operation << 32 | known.events, known.data.u64, result);
}

int sei_call_ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    int *argument = va_arg(arguments, int *);
    va_end(arguments);
    if (request != FIONREAD && request != FIONBIO && request != TIOCOUTQ) {
        sei_rt_refuse("ioctl with a request other than FIONREAD, FIONBIO and TIOCOUTQ");
    }
    int value = request == FIONBIO ? *(const int *)sei_rt_read_at(argument) : 0;
    uint64_t given = (uint64_t)(unsigned)value;
    int result = sei_rt_runs_first() ? ioctl(fd, request, &value) : 0;
    result = (int)sei_rt_recorded("ioctl", RECORDED, (uint64_t)fd, request, given, result);
    if (result == 0 && request != FIONBIO) {
        sei_rt_bytes(&value, 0, sizeof value);
        memcpy(sei_rt_will_write(argument, sizeof value), &value, sizeof value);
    }
    return result;
}

/* The pieces of a message as they are for this run. */
static size_t pieces_of(const struct msghdr *message, struct iovec *pieces) {
    size_t bytes = 0;
    if (message->msg_iovlen > 64) {
        sei_rt_refuse("recvmsg with more than 64 pieces");
    }
    const struct iovec *known = sei_rt_read_at(message->msg_iov);
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        pieces[i] = known[i];
        pieces[i].iov_base = sei_rt_will_write(known[i].iov_base, known[i].iov_len);
        bytes += known[i].iov_len;
    }
    return bytes;
}

ssize_t sei_call_recvmsg(int fd, struct msghdr *known, int flags) {
    struct msghdr message;
    struct iovec pieces[64];
    struct sockaddr_storage name;
    _Alignas(struct cmsghdr) char control[OPTION_BYTES];
    memcpy(&message, sei_rt_read_at(known), sizeof message);
    void *to_name = message.msg_name, *to_control = message.msg_control;
    const struct iovec *given = sei_rt_read_at(message.msg_iov);
    size_t room = pieces_of(&message, pieces);
    if (message.msg_controllen > sizeof control) {
        sei_rt_refuse("recvmsg with room for more than 512 bytes of control data");
    }
    memset(&name, 0, sizeof name), memset(control, 0, sizeof control);
    message.msg_iov = pieces;
    message.msg_name = to_name ? &name : NULL;
    message.msg_namelen = to_name && message.msg_namelen > sizeof name ? sizeof name : message.msg_namelen;
    message.msg_control = to_control ? control : NULL;
    ssize_t result = sei_rt_runs_first() ? recvmsg(fd, &message, flags) : 0;
    result = sei_rt_recorded("recvmsg", TAKEN, (uint64_t)fd, room, (uint64_t)flags, result);
    if (result < 0) {
        return result;
    }
    struct { size_t control_length; socklen_t name_length; int flags; } sizes;
    sizes.control_length = message.msg_controllen, sizes.name_length = message.msg_namelen;
    sizes.flags = message.msg_flags;
    sei_rt_bytes(&sizes, 0, sizeof sizes);
    sei_rt_bytes(&name, sizeof sizes, sizeof name);
    sei_rt_bytes(control, sizeof sizes + sizeof name, sizeof control);
    size_t skip = sizeof sizes + sizeof name + sizeof control, left = (size_t)result < room ? (size_t)result : room;
    for (size_t i = 0; i < message.msg_iovlen && left > 0; i++) {
        size_t length = given[i].iov_len < left ? given[i].iov_len : left;
        sei_rt_bytes(given[i].iov_base, skip, length);
        skip += length, left -= length;
    }
    if (to_name) {
        size_t length = sizes.name_length < sizeof name ? sizes.name_length : sizeof name;
        memcpy(sei_rt_will_write(to_name, length), &name, length);
    }
    if (to_control && sizes.control_length) {
        memcpy(sei_rt_will_write(to_control, sizes.control_length), control, sizes.control_length);
    }
    struct msghdr *to = sei_rt_will_write(known, sizeof *known);
    to->msg_namelen = sizes.name_length, to->msg_controllen = sizes.control_length, to->msg_flags = sizes.flags;
    return result;
}

/* ---- Addresses. ---- */

int sei_call_inet_aton(const char *text, struct in_addr *to) {
    struct in_addr address;
    int result = inet_aton(sei_rt_read_at(text), &address);
    if (result) {
        memcpy(sei_rt_will_write(to, sizeof address), &address, sizeof address);
    }
    return result;
}

int sei_call_inet_pton(int family, const char *text, void *to) {
    struct in6_addr address;
    int result = inet_pton(family, sei_rt_read_at(text), &address);
    if (result > 0) {
        size_t length = family == AF_INET6 ? sizeof address : sizeof(struct in_addr);
        memcpy(sei_rt_will_write(to, length), &address, length);
    }
    return result;
}

const char *sei_call_inet_ntop(int family, const void *address, char *to, socklen_t room) {
    char text[INET6_ADDRSTRLEN];
    socklen_t most = room < sizeof text ? room : sizeof text;
    if (!inet_ntop(family, sei_rt_read_at(address), text, most)) {
        return NULL;
    }
    size_t length = strlen(text) + 1;
    memcpy(sei_rt_will_write(to, length), text, length);
    return to;
}

/* As the C library's text, of this thread; but undone and written again as other memory is. */
char *sei_call_inet_ntoa(struct in_addr address) {
    static __thread char text[INET_ADDRSTRLEN];
    sei_call_inet_ntop(AF_INET, &address, text, sizeof text);
    return text;
}

unsigned sei_call_if_nametoindex(const char *name) {
    const char *at = sei_rt_read_at(name);
    int64_t result = sei_rt_runs_first() ? if_nametoindex(at) : 0;
    return (unsigned)sei_rt_recorded("if_nametoindex", RECORDED, sei_crc(0, at, strlen(at)), 0, 0, result);
}

char *sei_call_if_indextoname(unsigned index, char *to) {
    char name[IF_NAMESIZE] = "";
    int64_t found = sei_rt_runs_first() ? if_indextoname(index, name) != NULL : 0;
    found = sei_rt_recorded("if_indextoname", RECORDED, index, POINTER(to), 0, found);
    if (!found) {
        return NULL;
    }
    sei_rt_bytes(name, 0, sizeof name);
    memcpy(sei_rt_will_write(to, sizeof name), name, sizeof name);
    return to;
}

/* The second run is given the first one's list. */
int sei_call_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **to) {
    struct addrinfo *list = NULL;
    const char *host = sei_rt_read_at(name), *port = sei_rt_read_at(service);
    int result = sei_rt_runs_first() ? getaddrinfo(host, port, sei_rt_read_at(hints), &list) : 0;
    uint32_t crc = host ? sei_crc(0, host, strlen(host)) : 0;
    crc = port ? sei_crc(crc, port, strlen(port)) : crc;
    result = (int)sei_rt_recorded("getaddrinfo", TAKEN, crc, POINTER(to), 0, result);
    if (result == 0) {
        sei_rt_bytes(&list, 0, sizeof list);
        memcpy(sei_rt_will_write(to, sizeof list), &list, sizeof list);
    }
    return result;
}

int sei_call_getifaddrs(struct ifaddrs **to) {
    struct ifaddrs *list = NULL;
    int result = sei_rt_runs_first() ? getifaddrs(&list) : 0;
    result = (int)sei_rt_recorded("getifaddrs", TAKEN, POINTER(to), 0, 0, result);
    if (result == 0) {
        sei_rt_bytes(&list, 0, sizeof list);
        memcpy(sei_rt_will_write(to, sizeof list), &list, sizeof list);
    }
    return result;
}

static void do_free_list(uint64_t list, uint64_t is_interfaces, uint64_t unused, const uint8_t *bytes, size_t length) {
    (void)unused, (void)bytes, (void)length;
    if (is_interfaces) {
        freeifaddrs((struct ifaddrs *)(uintptr_t)list);
    } else {
        freeaddrinfo((struct addrinfo *)(uintptr_t)list);
    }
}

void sei_call_freeaddrinfo(struct addrinfo *list) { sei_rt_defer(do_free_list, POINTER(list), 0, 0, NULL, 0); }
void sei_call_freeifaddrs(struct ifaddrs *list) { sei_rt_defer(do_free_list, POINTER(list), 1, 0, NULL, 0); }

int sei_call_getnameinfo(const struct sockaddr *address, socklen_t length, char *host, socklen_t host_room,
                         char *service, socklen_t service_room, int flags) {
    char host_text[NI_MAXHOST] = "", service_text[NI_MAXSERV] = "";
    socklen_t host_most = host_room < sizeof host_text ? host_room : sizeof host_text;
    socklen_t service_most = service_room < sizeof service_text ? service_room : sizeof service_text;
    const struct sockaddr *at = sei_rt_read_at(address);
    int result = sei_rt_runs_first() ? getnameinfo(at, length, host ? host_text : NULL, host ? host_most : 0,
                                                   service ? service_text : NULL, service ? service_most : 0, flags)
                                     : 0;
    result = (int)sei_rt_recorded("getnameinfo", RECORDED, sei_crc(0, at, length), POINTER(host), POINTER(service),
                                  result);
    if (result != 0) {
        return result;
    }
    sei_rt_bytes(host_text, 0, sizeof host_text);
    sei_rt_bytes(service_text, sizeof host_text, sizeof service_text);
    if (host && host_room) {
        memcpy(sei_rt_will_write(host, strlen(host_text) + 1), host_text, strlen(host_text) + 1);
    }
    if (service && service_room) {
        memcpy(sei_rt_will_write(service, strlen(service_text) + 1), service_text, strlen(service_text) + 1);
    }
    return 0;
}

/* ---- The machine. ---- */

int sei_call_gethostname(char *to, size_t n) {
    char name[256] = "";
    int result = sei_rt_runs_first() ? gethostname(name, n < sizeof name ? n : sizeof name - 1) : 0;
    result = (int)sei_rt_recorded("gethostname", RECORDED, POINTER(to), n, 0, result);
    if (result == 0) {
        sei_rt_bytes(name, 0, sizeof name);
        size_t length = strlen(name) + 1 < n ? strlen(name) + 1 : n;
        memcpy(sei_rt_will_write(to, length), name, length);
    }
    return result;
}

int sei_call_uname(struct utsname *to) {
    struct utsname known;
    memset(&known, 0, sizeof known);
    int result = sei_rt_runs_first() ? uname(&known) : 0;
    result = (int)sei_rt_recorded("uname", RECORDED, POINTER(to), 0, 0, result);
    sei_rt_bytes(&known, 0, sizeof known);
    memcpy(sei_rt_will_write(to, sizeof known), &known, sizeof known);
    return result;
}
