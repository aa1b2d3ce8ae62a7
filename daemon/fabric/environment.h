/* The environment that libfabric reads: see environment.c. */
#ifndef GRD_FABRIC_ENVIRONMENT_H
#define GRD_FABRIC_ENVIRONMENT_H

/* Changes the process' environment and logs each change of something the operator had set. Before threads. */
void environment_clean(void);

#endif
