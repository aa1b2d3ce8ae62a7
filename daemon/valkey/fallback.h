/*
 * Which way values move between this host and a node: by RDMA, or over the RESP connection ([valkey] fallback = tcp).
 *
 * Concepts. The fallback is for what has no RDMA: a fabric of this host that cannot be used, and a server that refuses
 * a session because it has no fabric (blob_is_without_fabric).
 * Nothing else leads to it: a session that fails for another
 * reason, or a transfer that fails, is told as ever. Each node is on one of the two paths; every change is logged, and
 * node_health tells the path and why.
 *
 * Carriers over TCP have no lane. RDMA is tried again by one new carrier, for a transfer that waits: when [valkey]
 * fallback_retry_ms have passed since the last attempt, and at once when the connection to the server was made anew,
 * for it may have been started with a fabric. Nothing is tried while nobody transfers. Loop thread only. Private to
 * valkey/.
 */
#ifndef GRD_VALKEY_FALLBACK_H
#define GRD_VALKEY_FALLBACK_H

#include <stdbool.h>

struct node;
struct carrier;

/* Whether the next carrier is to be made without a lane. Each false while the node is on TCP is an attempt. */
bool fallback_without_lane(struct node *node);

/* HELLO was refused with these words. True: the node is on TCP from now on, and carriers without lane may follow. */
bool fallback_after_refusal(struct node *node, const char *text);

/* A session was opened: those over TCP are given up. */
void fallback_ends(struct node *node);

/* RDMA may be tried again, and carriers without lane that are idle make room for that. */
void fallback_make_way(struct node *node);
bool fallback_is_due(const struct node *node);

/* The server may be another one: it is asked at once. */
void fallback_ask_again(struct node *node);

/* The fallback is configured, and there is nothing else on this host. */
bool fallback_only(const struct node *node);

/* "rdma" or "tcp", and why it is the latter, else "". */
const char *fallback_path(const struct node *node, const char **why);

#endif
