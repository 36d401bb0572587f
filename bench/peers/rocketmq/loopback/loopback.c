/* Preloaded into RocketMQ's servers: what they would open to every network they open on loopback,
   and they end with the benchmark, whatever becomes of it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

__attribute__((constructor)) static void end_with_parent(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

int bind(int descriptor, const struct sockaddr *address, socklen_t length) {
    int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    struct sockaddr_storage changed;
    memset(&changed, 0, sizeof changed);
    if (length > sizeof changed)
        return next(descriptor, address, length);
    memcpy(&changed, address, length);
    if (changed.ss_family == AF_INET) {
        struct sockaddr_in *four = (struct sockaddr_in *)&changed;
        if (four->sin_addr.s_addr == htonl(INADDR_ANY))
            four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else if (changed.ss_family == AF_INET6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)&changed;
        if (IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr))
            inet_pton(AF_INET6, "::ffff:127.0.0.1", &six->sin6_addr);
    }
    return next(descriptor, (struct sockaddr *)&changed, length);
}
