/*
 * Configuration of the module and its fault switches, as `largeobj.*` of CONFIG GET and CONFIG SET.
 *
 * Both structs belong to the main thread. A command copies what its transfer needs when it starts, so a CONFIG SET
 * never changes a transfer that is under way, and worker threads never read these.
 */
#ifndef LARGEOBJ_SETTINGS_H
#define LARGEOBJ_SETTINGS_H

#include "module_api.h"

#define FAULT_TEXT_MAX 128

enum fabric_provider {
    PROVIDER_EMULATED,
    PROVIDER_VERBS,
};

enum name_set {
    NAMES_CURRENT,
    NAMES_OLD,
};

struct settings {
    int provider;               /* enum fabric_provider; load time */
    int names;                  /* enum name_set; load time */
    char interfaces[1024];      /* one endpoint for each entry; load time */
    long long chunk_size;
    long long max_object_size;
    long long max_in_flight;
    long long op_timeout_ms;
    long long eagain_timeout_ms;
    char journal[1024];         /* file of journal.h; empty: none */
    long long timeout_callback; /* blocked clients get a timeout callback, so that CLIENT UNBLOCK can answer them */
};

struct faults {
    long long delay_before_transfer_ms;
    long long delay_between_chunks_ms;
    long long delay_before_reply_ms;
    long long fail_operation;      /* counting from 1; goes back to 0 once it has hit */
    long long error_while_running;
    long long drop_while_running;
    long long error_after_bytes;   /* for the two above */
    long long error_delay_ms;      /* for the two above */
    long long drop_before_reply;
    long long never_answer;
    long long shuffle;
    long long wrong_crc;
    long long get_null;
    long long get_reply;           /* enum get_reply */
    long long set_reply;           /* enum set_reply */
    long long refuse_hello;        /* how many; counts down */
    long long hello_garbage;       /* enum hello_garbage */
    long long answer_error_count;  /* how many RDMA_SET and RDMA_GET answer the text below; counts down */
    char answer_error[FAULT_TEXT_MAX];
};

enum get_reply {
    GET_REPLY_NORMAL,
    GET_REPLY_INTEGER,
    GET_REPLY_ARRAY_OF_3,
    GET_REPLY_NEGATIVE_LENGTH,
    GET_REPLY_CRC_OVER_32_BITS,
    GET_REPLY_LENGTH_OVER_WINDOW,
    GET_REPLY_BULK_STRING,
    GET_REPLY_LAST = GET_REPLY_BULK_STRING,
};

enum set_reply {
    SET_REPLY_NORMAL,
    SET_REPLY_INTEGER,
    SET_REPLY_OTHER_STATUS,
    SET_REPLY_NULL,
    SET_REPLY_ARRAY,
    SET_REPLY_LAST = SET_REPLY_ARRAY,
};

enum hello_garbage {
    HELLO_NORMAL,
    HELLO_INTEGER,
    HELLO_NOT_HEX,
    HELLO_EMPTY_ARRAY,
    HELLO_BAD_ADDRESS, /* the last address is hex, but no address */
    HELLO_LAST = HELLO_BAD_ADDRESS,
};

extern struct settings settings;
extern struct faults faults;

/* Registers every parameter and loads the values given at start. For OnLoad; returns VM_OK or VM_ERR. */
int settings_register(struct vm_ctx *ctx);

#endif
