/* The map of a cluster, as servers tell it, honest and hostile ones; and where redirections point. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/redirect.h"
#include "tests/unit/unit_main.h"

static const struct topology_endpoint asked = {"10.0.0.9", "7000"};

/* Reads one reply as the wire has it. */
static redisReply *reply_of(const char *wire, size_t length)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    reader->maxelements = 65536;
    ck_assert_int_eq(redisReaderFeed(reader, wire, length), REDIS_OK);
    ck_assert_int_eq(redisReaderGetReply(reader, &reply), REDIS_OK);
    ck_assert_ptr_nonnull(reply);
    redisReaderFree(reader);
    return reply;
}

static int parse(const char *wire, struct topology **map, char why[TOPOLOGY_WHY_BYTES])
{
    redisReply *reply = reply_of(wire, strlen(wire));
    int status;

    why[0] = '\0';
    status = topology_parse(reply, &asked, map, why);
    freeReplyObject(reply);
    ck_assert((status == 0) == (*map != NULL));
    ck_assert((status == 0) == (why[0] == '\0'));
    return status;
}

static const char *owner_of(const struct topology *map, unsigned slot, char text[TOPOLOGY_TEXT_BYTES])
{
    if (map->owners[slot] >= map->count) {
        return "nobody";
    }
    topology_endpoint_text(&map->nodes[map->owners[slot]].endpoint, text);
    return text;
}

/* Of a server of version 8: an id and a list of further addresses behind the port. */
#define NODE(host, port) "*4\r\n" host ":" port "\r\n$3\r\nabc\r\n*0\r\n"

START_TEST(a_map)
{
    struct topology *map;
    char why[TOPOLOGY_WHY_BYTES], text[TOPOLOGY_TEXT_BYTES];

    ck_assert_int_eq(parse("*4\r\n"
                           "*4\r\n:0\r\n:5460\r\n" NODE("$9\r\n127.0.0.1\r\n", "7001")
                           NODE("$9\r\n127.0.0.1\r\n", "7002")
                           "*3\r\n:5461\r\n:5461\r\n" NODE("$3\r\n::1\r\n", "7003")
                           "*3\r\n:6000\r\n:6000\r\n" NODE("$-1\r\n", "7004")
                           "*3\r\n:6002\r\n:16383\r\n" NODE("$9\r\n127.0.0.1\r\n", "7001"),
                           &map, why), 0);
    ck_assert_uint_eq(map->count, 3);
    ck_assert_str_eq(owner_of(map, 0, text), "127.0.0.1:7001");
    ck_assert_str_eq(owner_of(map, 5460, text), "127.0.0.1:7001");
    ck_assert_str_eq(owner_of(map, 5461, text), "[::1]:7003");
    ck_assert_str_eq(owner_of(map, 5462, text), "nobody");
    ck_assert_str_eq(owner_of(map, 6000, text), "10.0.0.9:7004"); /* no host: the node's that was asked */
    ck_assert_str_eq(owner_of(map, 6001, text), "nobody");
    ck_assert_str_eq(owner_of(map, 16383, text), "127.0.0.1:7001");
    ck_assert_uint_eq(map->nodes[0].slots, 5461 + 10382);
    ck_assert_uint_eq(map->covered, 5461 + 1 + 1 + 10382);
    free(map);
}
END_TEST

START_TEST(hosts)
{
    struct topology *map;
    char why[TOPOLOGY_WHY_BYTES], text[TOPOLOGY_TEXT_BYTES];

    ck_assert_int_eq(parse("*2\r\n*3\r\n:0\r\n:1\r\n*2\r\n$0\r\n\r\n:7001\r\n"
                           "*3\r\n:2\r\n:3\r\n*2\r\n$1\r\n?\r\n:7001\r\n", &map, why), 0);
    ck_assert_str_eq(owner_of(map, 0, text), "10.0.0.9:7001");
    ck_assert_str_eq(owner_of(map, 2, text), "nobody");
    free(map);
}
END_TEST

START_TEST(what_is_no_map)
{
    static const struct {
        const char *wire;
        int status;
        const char *why;
    } rows[] = {
        {"-ERR This instance has cluster support disabled\r\n", -EREMOTEIO, "cluster support disabled"},
        {"-NOPERM no\r\n", -EREMOTEIO, "NOPERM"},
        {"+OK\r\n", -EPROTO, "no list of slots"},
        {"$-1\r\n", -EPROTO, "no list of slots"},
        {"*0\r\n", -EPROTO, "no primary"},
        {"*1\r\n:1\r\n", -EPROTO, "no list of slots"},
        {"*1\r\n*0\r\n", -EPROTO, "no list of slots"},
        {"*1\r\n*2\r\n:0\r\n:1\r\n", -EPROTO, "no list of slots"},
        {"*1\r\n*3\r\n$1\r\n0\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n", -EPROTO, "no list of slots"},
        {"*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n", -EPROTO, "slots -1 to 1"},
        {"*1\r\n*3\r\n:2\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n", -EPROTO, "slots 2 to 1"},
        {"*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n", -EPROTO, "slots 0 to 16384"},
        {"*1\r\n*3\r\n:0\r\n:9223372036854775807\r\n*2\r\n$1\r\na\r\n:1\r\n", -EPROTO, "slots 0 to"},
        {"*1\r\n*3\r\n:0\r\n:1\r\n:7\r\n", -EPROTO, "no list of slots"},
        {"*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n", -EPROTO, "no list of slots"},
        {"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:0\r\n", -EPROTO, "without a port"},
        {"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:65536\r\n", -EPROTO, "without a port"},
        {"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n$4\r\n7000\r\n", -EPROTO, "without a port"},
        {"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n:5\r\n:1\r\n", -EPROTO, "neither a name"},
        {"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$3\r\na b\r\n:1\r\n", -EPROTO, "neither a name"},
        {"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$6\r\n/a.soc\r\n:1\r\n", -EPROTO, "neither a name"},
        {"*2\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n*3\r\n:5\r\n:6\r\n*2\r\n$1\r\nb\r\n:1\r\n", -EPROTO,
         "slot 5 twice"},
    };
    struct topology *map;
    char why[TOPOLOGY_WHY_BYTES];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert_msg(parse(rows[i].wire, &map, why) == rows[i].status, "row %zu", i);
        ck_assert_msg(strstr(why, rows[i].why) != NULL, "row %zu: %s", i, why);
    }
}
END_TEST

/* Each slot by itself, each range with a node of its own as far as that goes. */
static char *many(unsigned nodes, size_t *length)
{
    size_t capacity = 64 * SLOTS + 64;
    char *wire = malloc(capacity);

    *length = (size_t)sprintf(wire, "*%d\r\n", SLOTS);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        *length += (size_t)sprintf(wire + *length, "*3\r\n:%u\r\n:%u\r\n*2\r\n$4\r\n%04u\r\n:7000\r\n", slot, slot,
                                   slot % nodes);
    }
    return wire;
}

START_TEST(the_largest_maps)
{
    struct topology *map;
    char why[TOPOLOGY_WHY_BYTES], text[TOPOLOGY_TEXT_BYTES];
    size_t length;

    for (unsigned extra = 0; extra < 2; extra++) {
        char *wire = many(TOPOLOGY_NODES + extra, &length);
        redisReply *reply = reply_of(wire, length);
        ck_assert_int_eq(topology_parse(reply, &asked, &map, why), extra == 0 ? 0 : -EPROTO);
        if (extra == 0) {
            ck_assert_uint_eq(map->count, TOPOLOGY_NODES);
            ck_assert_uint_eq(map->covered, SLOTS);
            ck_assert_str_eq(owner_of(map, 16383, text), "1023:7000");
        } else {
            ck_assert_ptr_nonnull(strstr(why, "more than 1024 primaries"));
        }
        free(map);
        freeReplyObject(reply);
        free(wire);
    }
}
END_TEST

START_TEST(a_long_host)
{
    char wire[512], host[TOPOLOGY_HOST_BYTES + 1], why[TOPOLOGY_WHY_BYTES];
    struct topology *map;

    memset(host, 'h', sizeof(host));
    for (int length = TOPOLOGY_HOST_BYTES - 1; length <= TOPOLOGY_HOST_BYTES; length++) {
        snprintf(wire, sizeof(wire), "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$%d\r\n%.*s\r\n:1\r\n", length, length, host);
        ck_assert_int_eq(parse(wire, &map, why), length < TOPOLOGY_HOST_BYTES ? 0 : -EPROTO);
        free(map);
    }
}
END_TEST

START_TEST(comparing_and_moving)
{
    static const char wire[] = "*2\r\n*3\r\n:0\r\n:9\r\n*2\r\n$1\r\na\r\n:1\r\n"
                               "*3\r\n:10\r\n:19\r\n*2\r\n$1\r\nb\r\n:1\r\n";
    /* The same in another order, which numbers the nodes otherwise. */
    static const char turned[] = "*2\r\n*3\r\n:10\r\n:19\r\n*2\r\n$1\r\nb\r\n:1\r\n"
                                 "*3\r\n:0\r\n:9\r\n*2\r\n$1\r\na\r\n:1\r\n";
    struct topology *one, *other;
    char why[TOPOLOGY_WHY_BYTES], text[TOPOLOGY_TEXT_BYTES];

    ck_assert_int_eq(parse(wire, &one, why), 0);
    ck_assert_int_eq(parse(turned, &other, why), 0);
    ck_assert(topology_same(one, other));
    ck_assert_int_eq(topology_move(one, 5, &other->nodes[0].endpoint), 0);
    ck_assert(!topology_same(one, other));
    ck_assert_str_eq(owner_of(one, 5, text), "b:1");
    ck_assert(one->nodes[0].slots == 9 && one->nodes[1].slots == 11 && one->covered == 20);
    ck_assert_int_eq(topology_move(one, 30, &asked), 0);
    ck_assert_str_eq(owner_of(one, 30, text), "10.0.0.9:7000");
    ck_assert(one->count == 3 && one->covered == 21);
    one->count = TOPOLOGY_NODES;
    ck_assert_int_eq(topology_move(one, 30, &(struct topology_endpoint){"one more", "1"}), -ENOSPC);
    free(one);
    free(other);
}
END_TEST

/* --- redirections --- */

START_TEST(redirections)
{
    static const struct {
        const char *text;
        enum redirect_kind kind;
        unsigned slot;
        const char *target; /* NULL: the same host, port 6381 */
    } rows[] = {
        {"MOVED 3999 127.0.0.1:6381", REDIRECT_MOVED, 3999, "127.0.0.1:6381"},
        {"MOVED 0 valkey-1.example.net:1", REDIRECT_MOVED, 0, "valkey-1.example.net:1"},
        {"MOVED 16383 2001:db8::1:6381", REDIRECT_MOVED, 16383, "[2001:db8::1]:6381"},
        {"MOVED 1 [::1]:6381", REDIRECT_MOVED, 1, "[::1]:6381"},
        {"MOVED 1 :6381", REDIRECT_MOVED, 1, NULL},
        {"ASK 3999 127.0.0.1:6381", REDIRECT_ASK, 3999, "127.0.0.1:6381"},
        {"ASK 3999 :6381", REDIRECT_ASK, 3999, NULL},
        {"TRYAGAIN Multiple keys request during rehashing of slot", REDIRECT_LATER, 0, ""},
        {"LOADING Valkey is loading the dataset in memory", REDIRECT_LATER, 0, ""},
        {"BUSY Valkey is busy running a script.", REDIRECT_LATER, 0, ""},
        {"ERR disk staging buffer pool exhausted", REDIRECT_LATER, 0, ""},
        {"ERR disk staging buffer pool exhausted; retry later", REDIRECT_LATER, 0, ""},
        {"CLUSTERDOWN Hash slot not served", REDIRECT_LOST, 0, ""},
        {"MASTERDOWN Link with MASTER is down", REDIRECT_LOST, 0, ""},
        {"READONLY You can't write against a read only replica.", REDIRECT_LOST, 0, ""},
        /* What cannot be understood: where the slot is must be asked. */
        {"MOVED", REDIRECT_LOST, 0, ""},
        {"MOVED ", REDIRECT_LOST, 0, ""},
        {"MOVED 1", REDIRECT_LOST, 0, ""},
        {"MOVED 1 ", REDIRECT_LOST, 0, ""},
        {"MOVED 16384 a:1", REDIRECT_LOST, 0, ""},
        {"MOVED -1 a:1", REDIRECT_LOST, 0, ""},
        {"MOVED 99999999999 a:1", REDIRECT_LOST, 0, ""},
        {"MOVED x a:1", REDIRECT_LOST, 0, ""},
        {"MOVED 1 a", REDIRECT_LOST, 0, ""},
        {"MOVED 1 a:", REDIRECT_LOST, 0, ""},
        {"MOVED 1 a:0", REDIRECT_LOST, 0, ""},
        {"MOVED 1 a:65536", REDIRECT_LOST, 0, ""},
        {"MOVED 1 a:123456", REDIRECT_LOST, 0, ""},
        {"MOVED 1 a:1 b", REDIRECT_LOST, 0, ""},
        {"MOVED 1 a/b:1", REDIRECT_LOST, 0, ""},
        {"ASK 1 ?:1", REDIRECT_LOST, 0, ""},
        /* Anything else. */
        {"MOVEDX 1 a:1", REDIRECT_NONE, 0, ""},
        {"BUSYKEY Target key name already exists.", REDIRECT_NONE, 0, ""},
        {"ERR MOVED 1 a:1", REDIRECT_NONE, 0, ""},
        {"moved 1 a:1", REDIRECT_NONE, 0, ""},
        {"NOREPLICAS Not enough good replicas to write.", REDIRECT_NONE, 0, ""},
        {"OOM command not allowed", REDIRECT_NONE, 0, ""},
        {"ERR disk staging buffer pool exhausted;", REDIRECT_NONE, 0, ""},
    };
    char wire[512], text[TOPOLOGY_TEXT_BYTES];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct redirect redirect;
        snprintf(wire, sizeof(wire), "-%s\r\n", rows[i].text);
        redisReply *reply = reply_of(wire, strlen(wire));
        redirect_parse(reply, &redirect);
        freeReplyObject(reply);
        ck_assert_msg(redirect.kind == rows[i].kind, "%s: %d", rows[i].text, redirect.kind);
        if (redirect.kind != REDIRECT_MOVED && redirect.kind != REDIRECT_ASK) {
            continue;
        }
        ck_assert_uint_eq(redirect.slot, rows[i].slot);
        ck_assert_int_eq(redirect.same_host, rows[i].target == NULL);
        if (rows[i].target != NULL) {
            topology_endpoint_text(&redirect.endpoint, text);
            ck_assert_str_eq(text, rows[i].target);
        } else {
            ck_assert_str_eq(redirect.endpoint.port, "6381");
        }
    }
}
END_TEST

/* The first redirections cost nothing; the rest waits ever longer, and ends after about 20 s. */
START_TEST(delays)
{
    const struct redirect moved = {.kind = REDIRECT_MOVED}, later = {.kind = REDIRECT_LATER};
    unsigned sum = 0;

    for (unsigned attempts = 1; attempts < REDIRECT_ATTEMPTS; attempts++) {
        unsigned delay = redirect_delay_ms(&later, attempts);
        ck_assert(delay >= REDIRECT_BASE_MS && delay <= REDIRECT_LIMIT_MS);
        ck_assert_uint_eq(redirect_delay_ms(&moved, attempts), attempts <= REDIRECT_AT_ONCE ? 0 : delay);
        sum += delay;
    }
    ck_assert(sum > 15000 && sum < 25000);
}
END_TEST

UNIT_MAIN("topology", a_map, hosts, what_is_no_map, the_largest_maps, a_long_host, comparing_and_moving, redirections,
          delays)
