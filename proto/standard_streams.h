/*
 * Standard input, output and error of the programs of this package. Main thread.
 */
#ifndef GRD_PROTO_STANDARD_STREAMS_H
#define GRD_PROTO_STANDARD_STREAMS_H

/*
 * Takes the numbers 0 to 2 where the caller has closed them, before anything else is opened: a socket or a memory file
 * with such a number would get what is printed. Reading or writing there fails with EBADF as before.
 */
void standard_streams_fill(void);

/* 0 when all that was printed on standard output has left, else the errno of what went wrong. */
int standard_streams_flush(void);

#endif
