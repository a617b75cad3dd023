/* Brokers that are none: they take what a controller sends and agree at once, so that what is measured is the controller.
 *
 *     fakes ID[,ID...]       first line out: {"101": port, ...}; then one line of JSON for each command on stdin; ends with stdin
 *
 *     stats         {"101": {"lisr": [frames, states, bytes, last], "umr": [...], "sr": [...], "bad": "why" or ""}, ...}
 *                   last: time of the last answer in seconds since 1970
 *     reset         counters to zero
 *     forget        what was told is forgotten too
 *     drop ID       close that broker's connections
 *     check FILE    lines "topic partition leader leader_epoch": {"101": [LISR not told so, UMR not told so], ...}
 *
 * Understood are the versions of inter-broker protocol 3.9: LeaderAndIsr 7, UpdateMetadata 8, StopReplica 4, each with every partition
 * answered NONE. For each broker, kind and partition the last leader and leader epoch told are kept. One thread, one epoll.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LISR, UMR, SR, KINDS, MAX_BROKERS = 64, SLOTS = 1 << 17, UNTOLD = -9 };

typedef struct {
    int32_t leader, epoch;
} told;

typedef struct {        /* a topic of one broker */
    char *name;
    told *at[2];        /* LISR, UMR; by partition */
    int32_t size[2];
} topic;

typedef struct {
    int id, listener;
    uint64_t frames[KINDS], states[KINDS], bytes[KINDS];
    double last[KINDS];
    char bad[200];
    topic *topics;      /* open addressing, SLOTS entries */
} broker;

typedef struct connection {
    int fd;
    broker *of;
    unsigned char *in, *out;
    size_t in_end, in_size, out_at, out_end, out_size;
    struct connection *next;
} connection;

static broker brokers[MAX_BROKERS];
static int broker_count, epoll_fd;
static connection *connections;
static const char *kind_names[KINDS] = {"lisr", "umr", "sr"};

static void fail(const char *what, ...) {
    va_list rest;
    va_start(rest, what);
    vfprintf(stderr, what, rest);
    fputc('\n', stderr);
    exit(1);
}

static void *grown(void *block, size_t *size, size_t need) {
    if (need <= *size) return block;
    size_t to = *size ? *size : 4096;
    while (to < need) to *= 2;
    *size = to;
    if (!(block = realloc(block, to))) fail("out of memory");
    return block;
}

/* ---- what was told ---- */

static topic *topic_of(broker *b, const char *name, size_t length) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)name[i]) * 1099511628211u;
    for (size_t i = h % SLOTS, tries = 0; tries < SLOTS; i = (i + 1) % SLOTS, tries++) {
        topic *t = b->topics + i;
        if (!t->name) {
            t->name = strndup(name, length);
            return t;
        }
        if (strlen(t->name) == length && !memcmp(t->name, name, length)) return t;
    }
    fail("too many topics");
    return NULL;
}

static void tell(topic *t, int kind, int32_t partition, int32_t leader, int32_t epoch) {
    if (partition < 0 || partition > 1 << 20) return;
    if (partition >= t->size[kind]) {
        int32_t to = (partition + 16) * 2;
        t->at[kind] = realloc(t->at[kind], (size_t)to * sizeof(told));
        for (int32_t i = t->size[kind]; i < to; i++) t->at[kind][i] = (told){UNTOLD, UNTOLD};
        t->size[kind] = to;
    }
    t->at[kind][partition] = (told){leader, epoch};
}

static void forget(broker *b) {
    for (size_t i = 0; i < SLOTS; i++) {
        free(b->topics[i].name);
        free(b->topics[i].at[0]);
        free(b->topics[i].at[1]);
    }
    memset(b->topics, 0, SLOTS * sizeof(topic));
}

/* ---- reading a request, writing its answer ---- */

typedef struct {
    const unsigned char *at, *end;
    int bad;
} reader;

static const unsigned char *take(reader *r, size_t n) {
    static const unsigned char nothing[64];
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = 1;
        return nothing;
    }
    r->at += n;
    return r->at - n;
}
static int32_t i32(reader *r) {
    uint32_t v;
    memcpy(&v, take(r, 4), 4);
    return (int32_t)ntohl(v);
}
static int16_t i16(reader *r) {
    uint16_t v;
    memcpy(&v, take(r, 2), 2);
    return (int16_t)ntohs(v);
}
static uint32_t uvarint(reader *r) {
    uint32_t v = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        unsigned char b = *take(r, 1);
        v |= (uint32_t)(b & 127) << shift;
        if (b < 128) return v;
    }
    r->bad = 1;
    return 0;
}
static uint32_t count(reader *r) {      /* of a compact array or string; null counts as none */
    uint32_t n = uvarint(r);
    return n ? n - 1 : 0;
}
static void ints(reader *r) { take(r, 4 * (size_t)count(r)); }
static void tags(reader *r) {
    for (uint32_t n = uvarint(r); n && !r->bad; n--) {
        uvarint(r);
        take(r, uvarint(r));
    }
}

static void put(connection *c, const void *what, size_t n) {
    c->out = grown(c->out, &c->out_size, c->out_end + n);
    memcpy(c->out + c->out_end, what, n);
    c->out_end += n;
}
static void put_byte(connection *c, int v) {
    unsigned char b = (unsigned char)v;
    put(c, &b, 1);
}
static void put_i32(connection *c, int32_t v) {
    uint32_t n = htonl((uint32_t)v);
    put(c, &n, 4);
}
static void put_uvarint(connection *c, uint32_t v) {
    for (; v >= 128; v >>= 7) put_byte(c, (int)(v & 127) | 128);
    put_byte(c, (int)v);
}

/* an answered partition: index, error NONE, no tags */
static void put_partition(connection *c, int32_t index) {
    put_i32(c, index);
    put(c, "\0\0", 3);
}

static int leader_and_isr(connection *c, reader *r) {
    int states = 0;
    take(r, 4 + 1 + 4 + 8 + 1);         /* controller id, KRaft flag, controller epoch, broker epoch, type */
    put(c, "\0\0", 2);
    uint32_t topics = count(r);
    put_uvarint(c, topics + 1);
    for (; topics && !r->bad; topics--) {
        uint32_t length = count(r);
        topic *t = topic_of(c->of, (const char *)take(r, length), length);
        put(c, take(r, 16), 16);
        uint32_t partitions = count(r);
        put_uvarint(c, partitions + 1);
        for (; partitions && !r->bad; partitions--) {
            int32_t index = i32(r);
            i32(r);                     /* epoch of the controller that wrote it */
            int32_t leader = i32(r), epoch = i32(r);
            ints(r);
            i32(r);                     /* partition epoch */
            ints(r), ints(r), ints(r);
            take(r, 2);                 /* is new, recovery state */
            tags(r);
            tell(t, LISR, index, leader, epoch);
            put_partition(c, index);
            states++;
        }
        tags(r);
        put_byte(c, 0);
    }
    put_byte(c, 0);
    return states;
}

static int update_metadata(connection *c, reader *r) {
    int states = 0;
    take(r, 4 + 1 + 4 + 8);
    for (uint32_t topics = count(r); topics && !r->bad; topics--) {
        uint32_t length = count(r);
        topic *t = topic_of(c->of, (const char *)take(r, length), length);
        take(r, 16);
        for (uint32_t partitions = count(r); partitions && !r->bad; partitions--) {
            int32_t index = i32(r);
            i32(r);
            int32_t leader = i32(r), epoch = i32(r);
            ints(r);
            i32(r);
            ints(r), ints(r);
            tags(r);
            tell(t, UMR, index, leader, epoch);
            states++;
        }
        tags(r);
    }
    put(c, "\0\0", 3);
    return states;
}

static int stop_replica(connection *c, reader *r) {
    int states = 0;
    take(r, 4 + 1 + 4 + 8);
    put(c, "\0\0", 2);
    reader again = *r;
    for (int pass = 0; pass < 2; pass++) {      /* the answer is one flat list, so it is counted first */
        if (pass) {
            *r = again;
            put_uvarint(c, (uint32_t)states + 1);
        }
        for (uint32_t topics = count(r); topics && !r->bad; topics--) {
            uint32_t length = count(r);
            const unsigned char *name = take(r, length);
            for (uint32_t partitions = count(r); partitions && !r->bad; partitions--) {
                int32_t index = i32(r);
                take(r, 5);
                tags(r);
                if (pass) {
                    put_uvarint(c, length + 1);
                    put(c, name, length);
                    put_partition(c, index);
                } else {
                    states++;
                }
            }
            tags(r);
        }
    }
    put_byte(c, 0);
    return states;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void handle(connection *c, const unsigned char *payload, size_t size) {
    reader r = {payload, payload + size, 0};
    broker *b = c->of;
    int16_t key = i16(&r), version = i16(&r);
    int32_t correlation = i32(&r);
    int16_t client = i16(&r);
    if (client > 0) take(&r, (size_t)client);
    tags(&r);
    size_t begin = c->out_end;
    put_i32(c, 0);
    put_i32(c, correlation);
    put_byte(c, 0);
    int kind, states;
    if (key == 4 && version == 7) kind = LISR, states = leader_and_isr(c, &r);
    else if (key == 6 && version == 8) kind = UMR, states = update_metadata(c, &r);
    else if (key == 5 && version == 4) kind = SR, states = stop_replica(c, &r);
    else kind = -1, r.bad = 1, states = 0;
    if (r.bad) {
        snprintf(b->bad, sizeof b->bad, "request %d version %d of %zu bytes", key, version, size);
        c->out_end = begin;
        return;
    }
    uint32_t length = htonl((uint32_t)(c->out_end - begin - 4));
    memcpy(c->out + begin, &length, 4);
    b->frames[kind]++;
    b->states[kind] += (uint64_t)states;
    b->bytes[kind] += size + 4;
    b->last[kind] = now_s();
}

/* ---- connections ---- */

static void hang_up(connection *c) {
    close(c->fd);
    for (connection **p = &connections; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    free(c->in);
    free(c->out);
    free(c);
}

/* 0 when the connection is gone */
static int flush(connection *c) {
    while (c->out_at < c->out_end) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_end - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN) {
            hang_up(c);
            return 0;
        }
        if (n < 0) break;
        c->out_at += (size_t)n;
    }
    if (c->out_at == c->out_end) c->out_at = c->out_end = 0;
    struct epoll_event e = {.events = EPOLLIN | (c->out_end ? EPOLLOUT : 0u), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
    return 1;
}

static void readable(connection *c) {
    c->in = grown(c->in, &c->in_size, c->in_end + (1 << 18));
    ssize_t n = recv(c->fd, c->in + c->in_end, c->in_size - c->in_end, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        hang_up(c);
        return;
    }
    c->in_end += (size_t)n;
    size_t at = 0;
    while (c->in_end - at >= 4) {
        uint32_t size;
        memcpy(&size, c->in + at, 4);
        size = ntohl(size);
        if (size > 1u << 29) {
            hang_up(c);
            return;
        }
        if (c->in_end - at - 4 < size) break;
        handle(c, c->in + at + 4, size);
        at += 4 + size;
    }
    memmove(c->in, c->in + at, c->in_end - at);
    c->in_end -= at;
    flush(c);
}

static void accept_one(broker *b) {
    int fd = accept(b->listener, NULL, NULL), on = 1;
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connection *c = calloc(1, sizeof *c);
    c->fd = fd;
    c->of = b;
    c->next = connections;
    connections = c;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

/* ---- commands ---- */

static void check(const char *file) {
    FILE *f = fopen(file, "r");
    if (!f) fail("cannot read %s", file);
    uint64_t wrong[MAX_BROKERS][2] = {{0}};
    char name[256];
    int partition, leader, epoch;
    while (fscanf(f, "%255s %d %d %d", name, &partition, &leader, &epoch) == 4)
        for (int i = 0; i < broker_count; i++) {
            topic *t = topic_of(brokers + i, name, strlen(name));
            for (int kind = 0; kind < 2; kind++)
                if (partition >= t->size[kind] || t->at[kind][partition].leader != leader || t->at[kind][partition].epoch != epoch) wrong[i][kind]++;
        }
    fclose(f);
    for (int i = 0; i < broker_count; i++)
        printf("%s\"%d\": [%llu, %llu]", i ? ", " : "{", brokers[i].id, (unsigned long long)wrong[i][0], (unsigned long long)wrong[i][1]);
    puts("}");
}

static void stats(void) {
    for (int i = 0; i < broker_count; i++) {
        broker *b = brokers + i;
        printf("%s\"%d\": {", i ? ", " : "{", b->id);
        for (int k = 0; k < KINDS; k++)
            printf("\"%s\": [%llu, %llu, %llu, %.6f], ", kind_names[k], (unsigned long long)b->frames[k], (unsigned long long)b->states[k],
                   (unsigned long long)b->bytes[k], b->last[k]);
        printf("\"bad\": \"%s\"}", b->bad);
    }
    puts("}");
}

static void command(char *line) {
    char *argument = strchr(line, ' ');
    if (argument) *argument++ = 0;
    if (!strcmp(line, "stats")) stats();
    else if (!strcmp(line, "check") && argument) check(argument);
    else {
        int known = 0;
        for (int i = 0; i < broker_count; i++) {
            broker *b = brokers + i;
            if (!strcmp(line, "reset") || !strcmp(line, "forget")) {
                memset(b->frames, 0, sizeof b->frames);
                memset(b->states, 0, sizeof b->states);
                memset(b->bytes, 0, sizeof b->bytes);
                memset(b->last, 0, sizeof b->last);
                if (*line == 'f') forget(b);
                known = 1;
            } else if (!strcmp(line, "drop") && argument) {
                known = 1;
                if (atoi(argument) != b->id) continue;
                for (connection *c = connections, *next; c; c = next) {
                    next = c->next;
                    if (c->of == b) hang_up(c);
                }
            }
        }
        puts(known ? "\"ok\"" : "\"unknown command\"");
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != 2) fail("usage: fakes ID[,ID...]");
    epoll_fd = epoll_create1(0);
    for (char *save = NULL, *id = strtok_r(argv[1], ",", &save); id && broker_count < MAX_BROKERS; id = strtok_r(NULL, ",", &save)) {
        broker *b = brokers + broker_count;
        b->id = atoi(id);
        b->topics = calloc(SLOTS, sizeof(topic));
        b->listener = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof at;
        if (bind(b->listener, (struct sockaddr *)&at, size) || listen(b->listener, 64) || getsockname(b->listener, (struct sockaddr *)&at, &size)) fail("bind: %s", strerror(errno));
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = b};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, b->listener, &e);
        printf("%s\"%d\": %d", broker_count++ ? ", " : "{", b->id, ntohs(at.sin_port));
    }
    puts("}");
    fflush(stdout);
    struct epoll_event stdin_event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, 0, &stdin_event);
    char line[4096];
    size_t have = 0;
    for (;;) {
        /* one event at a time: handling it may free the connection of another */
        struct epoll_event e;
        if (epoll_wait(epoll_fd, &e, 1, -1) < 1) continue;
        void *what = e.data.ptr;
        if (!what) {
            ssize_t n = read(0, line + have, sizeof line - 1 - have);
            if (n <= 0) return 0;
            have += (size_t)n;
            for (char *end; (end = memchr(line, '\n', have));) {
                *end = 0;
                command(line);
                have -= (size_t)(end + 1 - line);
                memmove(line, end + 1, have);
            }
        } else if ((broker *)what >= brokers && (broker *)what < brokers + MAX_BROKERS) {
            accept_one(what);
        } else {
            connection *c = what;
            if (!(e.events & EPOLLOUT) || flush(c)) readable(c);
        }
    }
}
