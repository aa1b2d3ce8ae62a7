/*
 * Keeps the logins of a node's connections young: one timer, running only while [valkey] auth_max_age_ms is set and a
 * connection is there. Part of a node; loop thread only.
 */
#ifndef GRD_VALKEY_RENEWAL_H
#define GRD_VALKEY_RENEWAL_H

struct node;

void renewal_start(struct node *node);
/* The node's handle is closed later: see node_part_gone. */
void renewal_stop(struct node *node);

/* All connections log in again now, as a change of the configuration may want it. */
void renewal_now(struct node *node);

/* A connection has authenticated. */
void renewal_note(struct node *node);

#endif
