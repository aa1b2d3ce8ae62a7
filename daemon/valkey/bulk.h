/*
 * One reply that is a bulk string of any size, taken piece by piece: hiredis would copy it whole, and has no limit.
 *
 * Concepts. The reader sees the head ("$length", "$-1" or an error) and the end; the bytes between are never its own:
 * it stops in front of them, whoever reads takes them from the stream and says how many. No allocation, no callback.
 * What is neither a bulk string nor an error breaks the reader: nothing that follows can be understood then.
 */
#ifndef GRD_VALKEY_BULK_H
#define GRD_VALKEY_BULK_H

#include <stddef.h>
#include <stdint.h>

/* The longest line of an error, with its first character; servers' own have at most a few hundred. */
#define BULK_LINE_BYTES 1024

enum bulk_state {
    BULK_HEAD,
    BULK_PAYLOAD, /* `left` more bytes are the caller's to take */
    BULK_TAIL,
    BULK_DONE,
    BULK_BROKEN, /* `why` */
};

enum bulk_kind { BULK_STRING, BULK_NULL, BULK_ERROR };

struct bulk {
    enum bulk_state state;
    enum bulk_kind kind;    /* from the end of the head on */
    uint64_t length;        /* of a string, bytes */
    uint64_t left;          /* of it, not taken yet */
    char line[BULK_LINE_BYTES + 1]; /* of an error: its words, without the leading '-' */
    size_t line_length;
    size_t tail;            /* bytes of the end that came */
    const char *why;
};

void bulk_init(struct bulk *bulk);

/* Takes bytes of the head, or of the end. Returns how many: it stops whenever the state changes. */
size_t bulk_feed(struct bulk *bulk, const char *bytes, size_t length);

/* In PAYLOAD: the caller has taken `length` bytes, at most `left`, out of the stream. */
void bulk_took(struct bulk *bulk, uint64_t length);

#endif
