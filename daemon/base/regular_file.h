/*
 * Files that an operator names and that are read to their end: a FIFO, a socket or a device would make the reader wait
 * for somebody, or never end. Thread safe.
 */
#ifndef GRD_BASE_REGULAR_FILE_H
#define GRD_BASE_REGULAR_FILE_H

#include <sys/stat.h>

/*
 * Opens a file for reading; `folder` as for openat(). `status`, unless NULL, gets what fstat() says. Returns the file,
 * which is the caller's, or a negative errno: -EISDIR for a folder, -ENOTSUP for what is neither that nor a file with
 * bytes of its own. It never waits for a writer.
 */
int regular_file_open(int folder, const char *path, struct stat *status);

/* Words for what regular_file_open() and reads return, negative; as long-lived as those of strerror(). */
const char *regular_file_error(int error);

#endif
