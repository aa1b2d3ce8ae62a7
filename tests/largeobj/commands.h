/*
 * The BLOB.* commands. Main thread.
 */
#ifndef LARGEOBJ_COMMANDS_H
#define LARGEOBJ_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "module_api.h"

int command_rdma_hello(struct vm_ctx *ctx, struct vm_string **argv, int argc);
int command_rdma_set(struct vm_ctx *ctx, struct vm_string **argv, int argc);
int command_rdma_get(struct vm_ctx *ctx, struct vm_string **argv, int argc);
int command_tcp_set(struct vm_ctx *ctx, struct vm_string **argv, int argc);
int command_tcp_get(struct vm_ctx *ctx, struct vm_string **argv, int argc);
int command_info(struct vm_ctx *ctx, struct vm_string **argv, int argc);

/* The older generation, in which RDMA and TCP forms share a verb and are told apart by the number of arguments. */
int command_old_set(struct vm_ctx *ctx, struct vm_string **argv, int argc);
int command_old_get(struct vm_ctx *ctx, struct vm_string **argv, int argc);

/* Registers the commands of largeobj.command-names. For OnLoad; returns VM_OK or VM_ERR. */
int commands_register(struct vm_ctx *ctx);

/* An unsigned decimal number as the real server reads it: digits, at most one leading plus. */
bool parse_u64(const struct vm_string *s, uint64_t *value);

/* Whether a word is this one, in any case. */
bool word_is(const struct vm_string *s, const char *word);

/* The error for a connection that must not be blocked (MULTI, script), or NULL. */
const char *blocking_denied(struct vm_ctx *ctx);

#endif
