/*
 * Exit status of glide-rdmactl, after sysexits.h; glide-rdmactl(1) documents them.
 */
#ifndef GRD_CTL_EXIT_H
#define GRD_CTL_EXIT_H

enum ctl_exit {
    CTL_OK = 0,
    CTL_FALSE = 1,        /* a key does not exist; doctor: a check has failed */
    CTL_USAGE = 64,       /* wrong options or arguments */
    CTL_DATA = 65,        /* the value: wrong checksum, wrong type, too large to fetch */
    CTL_INPUT = 66,       /* the input file: cannot be read, is empty, is too large to store */
    CTL_UNAVAILABLE = 69, /* no daemon, no server, or no answer of theirs */
    CTL_INTERNAL = 70,    /* the server or the daemon answered an error that has no status of its own */
    CTL_SYSTEM = 71,      /* a system call failed, here or in the daemon: memory, descriptors */
    CTL_CREATE = 73,      /* the output file cannot be created */
    CTL_IO = 74,          /* output could not be written */
    CTL_AGAIN = 75,       /* busy, draining, over a budget or quota, deadline: try again later */
    CTL_PROTOCOL = 76,    /* something else than this version of glide-rdmad listens there */
    CTL_NO_ACCESS = 77,   /* this user may not do it */
    CTL_CONFIG = 78,      /* reload: the configuration is wrong, and was not taken over */
};

#endif
