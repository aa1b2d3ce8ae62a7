/*
 * A queue pair without hardware, and at its other end a server that speaks its side of Valkey over RDMA.
 *
 * The wire is moved by hand, or by fake_rdma_turn for all that can move: what is posted is delivered later, and its
 * bytes are copied only then; events come by poll alone, and a descriptor becomes readable only when the queues were
 * armed (try_wait) and an event came after that, as with real completion queues. Every breach of the protocol by the
 * client fails the test: bytes outside of the window that was advertised, a foreign key, more announced than there is
 * room for, a window advertised anew before the last one was full, control messages of another form, more messages
 * under way than `sends`, bytes beyond the staging memory, a call after close.
 *
 * open and close may be called on any thread, everything else on one.
 */
#ifndef GRD_TESTS_FAKE_RDMA_H
#define GRD_TESTS_FAKE_RDMA_H

#include <check.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "daemon/valkey/rdma/ops.h"

/* As ck_assert, which tells its parent of each success: most of the time of a test that moves many messages. */
#define FAKE_CHECK(condition, ...)                                                                                    \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            ck_abort_msg("not so: " #condition ": " __VA_ARGS__);                                                     \
        }                                                                                                             \
    } while (0)

extern const struct rdma_ops fake_rdma_ops;

/* How the server is, for queue pairs that are opened from now on. */
struct fake_rdma_knobs {
    int open_error;      /* negative: `open` fails with it */
    bool no_answer;      /* to connect */
    int refuse;          /* negative: RDMA_REFUSED with it ... */
    int refuse_provider; /* ... and this */
    bool window_first;   /* the message with its window comes before RDMA_CONNECTED */
    bool mute;           /* never advertises a window by itself */
    uint32_t window;     /* bytes of its window; 0: 1 MiB */
    bool varies;         /* address, length (up to `window`) and key differ each time */
    bool no_again;       /* does not advertise a full window again by itself */
    bool no_features;    /* does not answer opcode 0 */
    size_t piece;        /* bytes of one write of the server at most; 0: any number */
    size_t pinned;       /* what memory.pinned_bytes says */
    int local_address_error;
};

struct fake_rdma_peer {
    uint8_t *window;
    uint64_t address;
    uint32_t length, rkey, have; /* `have`: announced, and read at once */
    unsigned receives;           /* that are posted */
    bool advertised;

    uint64_t to_address; /* the client's window, and how far it is filled */
    uint32_t to_length, to_rkey, to_offset;

    uint8_t *got; /* all bytes that ever came */
    size_t got_length, got_capacity;
    size_t got_used; /* for whoever looks at them */
    uint8_t *say; /* all bytes that are to be written, and how many have been */
    size_t say_length, say_capacity, said;

    unsigned windows;    /* advertisements of the client */
    unsigned keepalives, features, payloads; /* messages of the client, by kind */
    uint32_t random;
};

struct fake_rdma_message; /* of the client, posted */

struct rdma_queue_pair {
    LIST_ENTRY(rdma_queue_pair) link;
    unsigned number; /* from 1, in the order of opening */
    struct fake_rdma_knobs knobs;
    struct rdma_settings settings;
    char host[64];
    uint8_t *window, *staging;
    int descriptors[2];
    bool armed, connecting, connected, over, asleep;
    struct rdma_event *events; /* [event_first, event_count) */
    size_t event_first, event_count, event_capacity;
    struct fake_rdma_message *posted; /* not delivered */
    size_t posted_count, posted_capacity;
    struct fake_rdma_message *unseen; /* delivered, not looked at by the server */
    size_t unseen_count, unseen_capacity;
    unsigned under_way;    /* posted and no RDMA_SENT read */
    unsigned most_unseen;  /* ever */
    unsigned receives;     /* of the client */
    bool hold_sent;        /* RDMA_SENT does not come ... */
    struct rdma_event *held; /* ... until fake_rdma_release */
    size_t held_count, held_capacity;
    struct fake_rdma_peer peer;
    void *user;
};

/* Forgets knobs and numbers; every queue pair must be closed. */
void fake_rdma_reset(void);
extern struct fake_rdma_knobs fake_rdma_knobs;
/* Looks at what came, after fake_rdma_turn has moved it; NULL: nobody does. */
extern void (*fake_rdma_hook)(struct rdma_queue_pair *pair);
/* Before each open, on its worker; NULL: nothing. */
extern void (*fake_rdma_before_open)(const char *host);

/* Queue pairs that are open, and that ever were. */
unsigned fake_rdma_open_count(void);
unsigned fake_rdma_ever(void);
/* The one that was opened last, or NULL when it is closed. */
struct rdma_queue_pair *fake_rdma_last(void);

/* Moves all that can move, once, on every queue pair. */
void fake_rdma_turn(void);

/* The parts of a turn: up to `most` posted messages reach the server's NIC; the server looks at up to `most`; it writes
 * what it has to say as far as there is room, in up to `most` pieces. */
void fake_rdma_deliver(struct rdma_queue_pair *pair, size_t most);
void fake_rdma_look(struct rdma_queue_pair *pair, size_t most);
void fake_rdma_write(struct rdma_queue_pair *pair, size_t most);

/* The server's side. */
void fake_rdma_say(struct rdma_queue_pair *pair, const void *bytes, size_t length);
void fake_rdma_advertise(struct rdma_queue_pair *pair);
void fake_rdma_advertise_as(struct rdma_queue_pair *pair, uint64_t address, uint32_t length, uint32_t rkey);
void fake_rdma_keepalive(struct rdma_queue_pair *pair);
void fake_rdma_message(struct rdma_queue_pair *pair, const void *bytes, size_t length);
void fake_rdma_payload(struct rdma_queue_pair *pair, uint32_t immediate); /* announced, nothing written */
void fake_rdma_disconnect(struct rdma_queue_pair *pair);
void fake_rdma_fail(struct rdma_queue_pair *pair, int provider_status);
void fake_rdma_fail_with(struct rdma_queue_pair *pair, int status, int provider_status);
void fake_rdma_release(struct rdma_queue_pair *pair);

#endif
