/*
 * The bytes of a transfer: cutting a value in pieces and giving these to the fabric. For the transfer's worker.
 */
#ifndef LARGEOBJ_PIECES_H
#define LARGEOBJ_PIECES_H

#include <stddef.h>

struct transfer;

/* Cuts the value in chunks, and each chunk by the regions it spans. Returns 0 or -ENOMEM. */
int pieces_cut(struct transfer *transfer);

/* Index after the last piece of the chunk that a piece belongs to. */
size_t pieces_chunk_end(const struct transfer *transfer, size_t piece);

/* Hands over a range of pieces. */
void pieces_submit(struct transfer *transfer, size_t begin, size_t end);

#endif
