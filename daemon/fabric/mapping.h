/*
 * Access to the mapping of a slice, while registrations of it are made (struct slice_mapping); private to
 * daemon/fabric/. On workers; any number at once. docs/architecture.md, rule 5.
 */
#ifndef GRD_FABRIC_MAPPING_H
#define GRD_FABRIC_MAPPING_H

struct slice_mr;

/* Makes the registration's memory accessible, until mapping_hide. 0, or -errno: then mapping_hide must not follow. */
int mapping_show(struct slice_mr *mr);
/* The last of those that have shown it makes it PROT_NONE. 0, or -errno: it stays accessible. */
int mapping_hide(struct slice_mr *mr);

#endif
