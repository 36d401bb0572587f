/* Answers RocketMQ's clients without doing anything: what a load program can do at most.

   null_broker PORT BROKER MESSAGES: listens on loopback, names BROKER ("host:port") as where every
   topic is, takes every message for stored, and answers every pull with the 32 records of the file
   MESSAGES, which are of one size and get the place that the pull asks for. One thread. It ends
   with its parent. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    QUEUES = 8,
    PULLED = 32,
    IN_BYTES = 1 << 20,  /* of requests that are not answered yet; a longer request ends it */
    OUT_BYTES = 1 << 20, /* of answers that are not sent yet */
    HEADER_BYTES = 1024, /* of an answer, at most */
    EVENTS = 256,
    /* where a record has them, from its beginning */
    QUEUE_ID_AT = 12,
    QUEUE_OFFSET_AT = 20,
    /* request codes and answers */
    SEND = 10, PULL = 11, QUERY_OFFSET = 14, COMMIT_OFFSET = 15, MAKE_TOPIC = 17, HEARTBEAT = 34,
    LEAVE = 35, CONSUMERS = 38, ROUTE = 105, SEND_V2 = 310, SEND_BATCH = 320,
    SUCCESS = 0, UNKNOWN_REQUEST = 3, NO_TOPIC = 17,
};

struct connection {
    int descriptor;
    size_t in, out_at, out;
    char in_bytes[IN_BYTES];
    char out_bytes[OUT_BYTES];
};

static const char *broker;
static char *messages;
static size_t messages_bytes;
static char client[256]; /* the one that has sent a heartbeat last: the whole group */

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t number_at(const char *at) {
    uint32_t found;
    memcpy(&found, at, sizeof found);
    return ntohl(found);
}

static void put(char *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, sizeof value);
}

/* The text behind a name in JSON without spaces, or NULL. */
static const char *behind(const char *text, size_t bytes, const char *name) {
    const char *found = memmem(text, bytes, name, strlen(name));
    return found == NULL ? NULL : found + strlen(name);
}

static long field(const char *text, size_t bytes, const char *name) {
    const char *found = behind(text, bytes, name);
    return found == NULL ? -1 : strtol(found, NULL, 10); /* a brace or comma ends it */
}

static void answer(struct connection *to, long opaque, int code, const char *fields,
                   const char *body, size_t body_bytes) {
    char *frame = to->out_bytes + to->out;
    int header = snprintf(frame + 8, HEADER_BYTES,
                          "{\"code\":%d,\"extFields\":{%s},\"flag\":1,\"language\":\"OTHER\","
                          "\"opaque\":%ld,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
                          code, fields, opaque);
    put(frame, (uint32_t)(4 + header + body_bytes));
    put(frame + 4, (uint32_t)header);
    memcpy(frame + 8 + header, body, body_bytes);
    to->out += 8 + (size_t)header + body_bytes;
}

static void answer_pull(struct connection *to, const char *header, size_t bytes, long opaque) {
    long queue = field(header, bytes, "\"queueId\":\"");
    long offset = field(header, bytes, "\"queueOffset\":\"");
    size_t size = messages_bytes / PULLED;
    for (int at = 0; at < PULLED; at++) {
        char *record = messages + (size_t)at * size;
        put(record + QUEUE_ID_AT, (uint32_t)queue);
        put(record + QUEUE_OFFSET_AT, (uint32_t)((uint64_t)(offset + at) >> 32));
        put(record + QUEUE_OFFSET_AT + 4, (uint32_t)(offset + at));
    }
    char fields[256];
    snprintf(fields, sizeof fields,
             "\"suggestWhichBrokerId\":\"0\",\"nextBeginOffset\":\"%ld\",\"minOffset\":\"0\","
             "\"maxOffset\":\"%ld\"",
             offset + PULLED, offset + 1000 * PULLED);
    answer(to, opaque, SUCCESS, fields, messages, messages_bytes);
}

static void note_client(const char *body, size_t bytes) {
    const char *found = behind(body, bytes, "\"clientID\":\"");
    const char *end = found == NULL ? NULL : memchr(found, '"', (size_t)(body + bytes - found));
    if (end != NULL && (size_t)(end - found) < sizeof client) {
        memcpy(client, found, (size_t)(end - found));
        client[end - found] = 0;
    }
}

static void take(struct connection *from, const char *header, size_t bytes, const char *body,
                 size_t body_bytes) {
    long code = field(header, bytes, "\"code\":"), opaque = field(header, bytes, "\"opaque\":");
    long flag = field(header, bytes, "\"flag\":");
    char text[1024];
    if (code == HEARTBEAT)
        note_client(body, body_bytes);
    if (flag > 0)
        return; /* an answer, or a request that wants none */
    switch (code) {
    case SEND: case SEND_V2: case SEND_BATCH:
        answer(from, opaque, SUCCESS,
               "\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueId\":\"0\","
               "\"queueOffset\":\"0\"",
               "", 0);
        return;
    case PULL:
        answer_pull(from, header, bytes, opaque);
        return;
    case QUERY_OFFSET:
        answer(from, opaque, SUCCESS, "\"offset\":\"0\"", "", 0);
        return;
    case ROUTE:
        if (memmem(header, bytes, "%RETRY%", 7) != NULL) {
            answer(from, opaque, NO_TOPIC, "", "", 0);
            return;
        }
        snprintf(text, sizeof text,
                 "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"%s\"},\"brokerName\":\"bench\","
                 "\"cluster\":\"bench\"}],\"filterServerTable\":{},\"queueDatas\":[{\"brokerName\":"
                 "\"bench\",\"perm\":6,\"readQueueNums\":%d,\"topicSysFlag\":0,"
                 "\"writeQueueNums\":%d}]}",
                 broker, QUEUES, QUEUES);
        answer(from, opaque, SUCCESS, "", text, strlen(text));
        return;
    case CONSUMERS:
        snprintf(text, sizeof text, "{\"consumerIdList\":[\"%s\"]}", client);
        answer(from, opaque, SUCCESS, "", text, strlen(text));
        return;
    case COMMIT_OFFSET: case HEARTBEAT: case LEAVE: case MAKE_TOPIC:
        answer(from, opaque, SUCCESS, "", "", 0);
        return;
    default:
        answer(from, opaque, UNKNOWN_REQUEST, "", "", 0);
    }
}

/* Answer whole requests while there is room; return how many bytes they had, -1 for a bad one. */
static ssize_t take_all(struct connection *from) {
    size_t at = 0, room = HEADER_BYTES + 8 + (messages_bytes > 1024 ? messages_bytes : 1024);
    while (from->in - at >= 8 && OUT_BYTES - from->out >= room) {
        size_t total = number_at(from->in_bytes + at);
        size_t header = number_at(from->in_bytes + at + 4) & 0xffffff;
        if (total > IN_BYTES - 4 || total < 4 + header)
            return -1;
        if (from->in - at < 4 + total)
            break;
        const char *begin = from->in_bytes + at + 8;
        take(from, begin, header, begin + header, total - 4 - header);
        at += 4 + total;
    }
    memmove(from->in_bytes, from->in_bytes + at, from->in - at);
    from->in -= at;
    return (ssize_t)at;
}

/* Read, answer and send until there is nothing to do now; return -1 at the end of it. */
static int serve(struct connection *one) {
    for (;;) {
        ssize_t got = 0;
        if (one->in < IN_BYTES) {
            got = recv(one->descriptor, one->in_bytes + one->in, IN_BYTES - one->in, 0);
            if (got == 0 || (got < 0 && errno != EAGAIN))
                return -1;
            one->in += got > 0 ? (size_t)got : 0;
        }
        ssize_t taken = take_all(one);
        if (taken < 0)
            return -1;
        while (one->out_at < one->out) {
            ssize_t sent = send(one->descriptor, one->out_bytes + one->out_at,
                                one->out - one->out_at, MSG_NOSIGNAL);
            if (sent < 0)
                return errno == EAGAIN ? 0 : -1; /* woken when there is room */
            one->out_at += (size_t)sent;
        }
        one->out_at = one->out = 0;
        if (got <= 0 && taken == 0)
            return 0;
    }
}

static void accept_one(int listener, int poll) {
    struct connection *one = calloc(1, sizeof *one);
    if (one == NULL || (one->descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) < 0)
        fail("accept");
    int on = 1;
    setsockopt(one->descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = one};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, one->descriptor, &wanted) < 0)
        fail("epoll_ctl");
}

int main(int count, char **arguments) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count != 4)
        return 2;
    broker = arguments[2];
    FILE *file = fopen(arguments[3], "rb");
    messages = malloc(OUT_BYTES / 4);
    if (file == NULL || messages == NULL)
        fail(arguments[3]);
    messages_bytes = fread(messages, 1, OUT_BYTES / 4, file);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1, poll = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[1])),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&at, sizeof at) < 0 || listen(listener, 1024) < 0)
        fail("listen");
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &wanted);
    for (;;) {
        int found = epoll_wait(poll, events, EVENTS, -1);
        for (int each = 0; each < found; each++) {
            struct connection *one = events[each].data.ptr;
            if (one == NULL) {
                accept_one(listener, poll);
            } else if (serve(one) < 0) {
                close(one->descriptor);
                free(one);
            }
        }
    }
}
