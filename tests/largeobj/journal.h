/*
 * A record of every SET that was kept, for tests that count them: `largeobj.test-journal`.
 *
 * A line is "NODE KEY NONCE\n": the node's name in its cluster, or "-" without one; the key and the first 16 bytes of
 * the value, or all of a shorter one, in hexadecimal. It is appended with one write (O_APPEND) before the reply, so
 * several servers can share one file, and a server that is killed a moment later has told all the same.
 */
#ifndef LARGEOBJ_JOURNAL_H
#define LARGEOBJ_JOURNAL_H

#include "module_api.h"

struct blob;

/* Does nothing without a journal. What cannot be written is logged. Main thread. */
void journal_kept(struct vm_ctx *ctx, const struct vm_string *key, const struct blob *blob);

#endif
