/* A load generator for any Kafka broker: C connections with D requests in flight each, for a bounded time.
 *
 *     load TARGETS CONNECTIONS DEPTH SECONDS WARM_UP_SECONDS FRAME_HEX
 *
 * TARGETS is host:port[,host:port...] (IPv4), connections are dealt to them in turn. FRAME_HEX is one request without its length; the
 * correlation id in it (bytes 4 to 7) is replaced by a counter of the connection. One thread and one epoll: each answer that a read
 * brings is checked against the next correlation id and replaced by a new request, and all new requests of a read leave in one write,
 * so a connection has DEPTH in flight all the time. Answers are counted and timed from the end of the warm-up to the end; then the
 * rest is left unread. One line of JSON goes to stdout; anything wrong goes to stderr and ends the program with 1.
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_DEPTH = 4096, MAX_FRAME = 1 << 16, READ_SIZE = 1 << 20, BUCKETS = 64 * 32 };

typedef struct {
    int fd;
    uint32_t next_sent, next_read;      /* correlation ids */
    uint64_t sent_at[MAX_DEPTH];        /* by correlation id modulo DEPTH */
    unsigned char *out;                 /* requests that the socket did not take yet */
    size_t out_at, out_end;
    unsigned char head[8];              /* length and correlation id of the answer being read */
    size_t head_have, body_left;
    int wants_write;
} connection;

static unsigned char frame[MAX_FRAME + 4], *input;
static size_t frame_size;
static uint32_t depth;
static uint64_t histogram[BUCKETS], answers, answer_bytes, all_answers, count_from;
static int epoll_fd;

static void fail(const char *what, ...) {
    va_list rest;
    va_start(rest, what);
    vfprintf(stderr, what, rest);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* 32 buckets for each power of two: 3 % wide */
static unsigned bucket(uint64_t ns) {
    if (ns < 32) return (unsigned)ns;
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    return (top - 4) * 32 + (unsigned)((ns >> (top - 5)) & 31);
}

static double bucket_us(unsigned b) {
    if (b < 32) return b / 1000.0;
    return (double)((32ull + b % 32) << (b / 32 - 1)) / 1000.0;
}

static double percentile(double share) {
    uint64_t want = (uint64_t)(share * (double)answers), seen = 0;
    for (unsigned b = 0; b < BUCKETS; b++)
        if ((seen += histogram[b]) > want) return bucket_us(b);
    return 0;
}

static void watch(connection *c) {
    int wants = c->out_at < c->out_end;
    if (wants == c->wants_write) return;
    struct epoll_event e = {.events = EPOLLIN | (wants ? EPOLLOUT : 0u), .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e)) fail("epoll_ctl: %s", strerror(errno));
    c->wants_write = wants;
}

static void flush(connection *c) {
    while (c->out_at < c->out_end) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_end - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EAGAIN) break;
            fail("send: %s", strerror(errno));
        }
        c->out_at += (size_t)n;
    }
    if (c->out_at == c->out_end) c->out_at = c->out_end = 0;
    watch(c);
}

/* at most DEPTH requests are ever unanswered, so `out` never holds more than DEPTH frames; room is made at its front */
static void request(connection *c, uint64_t now) {
    if (c->out_end + frame_size > depth * frame_size) {
        memmove(c->out, c->out + c->out_at, c->out_end - c->out_at);
        c->out_end -= c->out_at;
        c->out_at = 0;
    }
    unsigned char *at = c->out + c->out_end;
    memcpy(at, frame, frame_size);
    uint32_t id = htonl(c->next_sent);
    memcpy(at + 8, &id, 4);
    c->sent_at[c->next_sent++ % depth] = now;
    c->out_end += frame_size;
}

static void answered(connection *c, size_t size, uint64_t now) {
    all_answers++;
    if (now >= count_from) {
        answers++;
        answer_bytes += size;
        histogram[bucket(now - c->sent_at[c->next_read % depth])]++;
    }
    c->next_read++;
    request(c, now);
}

static void readable(connection *c) {
    ssize_t n = recv(c->fd, input, READ_SIZE, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail("the broker closed a connection: %s", n ? strerror(errno) : "end of stream");
    uint64_t now = now_ns();
    for (size_t at = 0; at < (size_t)n;) {
        size_t left = (size_t)n - at;
        if (c->head_have < 8) {
            size_t take = 8 - c->head_have < left ? 8 - c->head_have : left;
            memcpy(c->head + c->head_have, input + at, take);
            c->head_have += take;
            at += take;
            if (c->head_have < 8) break;
            uint32_t size, id;
            memcpy(&size, c->head, 4);
            memcpy(&id, c->head + 4, 4);
            size = ntohl(size);
            id = ntohl(id);
            if (size < 4 || size > 1u << 30) fail("an answer of %u bytes", size);
            if (id != c->next_read) fail("correlation id %u where %u was due", id, c->next_read);
            c->body_left = size - 4;
        } else {
            size_t take = c->body_left < left ? c->body_left : left;
            c->body_left -= take;
            at += take;
        }
        if (c->head_have == 8 && !c->body_left) {
            uint32_t size;
            memcpy(&size, c->head, 4);
            c->head_have = 0;
            answered(c, ntohl(size) + 4, now);
        }
    }
    flush(c);
}

static connection *dial(const char *host, int port) {
    connection *c = calloc(1, sizeof *c);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) fail("not an IPv4 address: %s", host);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) fail("connect to %s:%d: %s", host, port, strerror(errno));
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (epoll_fd == 0) epoll_fd = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e)) fail("epoll_ctl: %s", strerror(errno));
    return c;
}

static void read_frame(const char *hex) {
    size_t size = strlen(hex) / 2;
    if (size < 8 || size > MAX_FRAME || strlen(hex) % 2) fail("a frame of %zu bytes", size);
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) fail("the frame is not hexadecimal");
        frame[4 + i] = (unsigned char)byte;
    }
    uint32_t length = htonl((uint32_t)size);
    memcpy(frame, &length, 4);
    frame_size = size + 4;
}

int main(int argc, char **argv) {
    if (argc != 7) fail("usage: load HOST:PORT[,HOST:PORT...] CONNECTIONS DEPTH SECONDS WARM_UP_SECONDS FRAME_HEX");
    int connections = atoi(argv[2]);
    depth = (uint32_t)atoi(argv[3]);
    double seconds = atof(argv[4]), warm_up = atof(argv[5]);
    if (connections < 1 || connections > 1024 || depth < 1 || depth > MAX_DEPTH || seconds <= 0 || warm_up < 0) fail("a number out of range");
    read_frame(argv[6]);
    input = malloc(READ_SIZE);
    connection *all[1024];
    char *targets[64], *save = NULL;
    int target_count = 0;
    for (char *t = strtok_r(argv[1], ",", &save); t && target_count < 64; t = strtok_r(NULL, ",", &save)) targets[target_count++] = t;
    for (int i = 0; i < target_count; i++)
        if (!strrchr(targets[i], ':')) fail("not HOST:PORT: %s", targets[i]);
    for (int i = 0; i < connections; i++) {
        char host[64];
        char *colon = strrchr(targets[i % target_count], ':');
        snprintf(host, sizeof host, "%.*s", (int)(colon - targets[i % target_count]), targets[i % target_count]);
        all[i] = dial(host, atoi(colon + 1));
        all[i]->out = malloc(depth * frame_size);
    }
    uint64_t begin = now_ns(), end = begin + (uint64_t)((warm_up + seconds) * 1e9);
    count_from = begin + (uint64_t)(warm_up * 1e9);
    for (int i = 0; i < connections; i++) {
        for (uint32_t k = 0; k < depth; k++) request(all[i], begin);
        flush(all[i]);
    }
    uint64_t last = begin, at;
    while ((at = now_ns()) < end) {
        struct epoll_event events[256];
        int n = epoll_wait(epoll_fd, events, 256, 100);
        if (n < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        if (n > 0) last = at;
        if (at - last > 10000000000u) fail("no answer for ten seconds");
        for (int i = 0; i < n; i++) {
            connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) flush(c);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) readable(c);
        }
    }
    if (!answers) fail("no answer at all");
    double took = (double)(now_ns() - count_from) / 1e9;
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    printf("{\"requests_per_s\": %.1f, \"requests\": %llu, \"all_requests\": %llu, \"seconds\": %.3f, ", (double)answers / took, (unsigned long long)answers,
           (unsigned long long)all_answers, took);
    printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"answer_bytes\": %.1f, \"own_cpu_s\": %.3f}\n", percentile(0.5), percentile(0.99),
           percentile(0.999), (double)answer_bytes / (double)answers,
           (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) + (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6);
    return 0;
}
