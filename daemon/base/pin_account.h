/*
 * Where memory is counted that is registered for a purpose of its own, beside what clients register: whoever registers
 * it knows no budget, only that it has to ask. Loop thread only.
 */
#ifndef GRD_BASE_PIN_ACCOUNT_H
#define GRD_BASE_PIN_ACCOUNT_H

#include <stddef.h>
#include <stdint.h>

#define PIN_ACCOUNT_WHY_BYTES 320

struct pin_account {
    /* Before the memory is registered. 0, or -ENOSPC when there is no room for so many bytes: nothing is charged, and
     * `why` says what was asked for, what is in use, and what the limit is. */
    int (*charge)(void *context, uint64_t bytes, char why[PIN_ACCOUNT_WHY_BYTES]);
    /* After it was given back, which is a job of a worker: the account must live until the workers have nothing left. */
    void (*release)(void *context, uint64_t bytes);
    void *context;
};

#endif
