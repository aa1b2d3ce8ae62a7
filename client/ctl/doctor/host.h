/*
 * What the host has, from /dev, /sys and /proc below `root` ("": the host's own), so that tests can show any host.
 * Thread safe.
 */
#ifndef GRD_CTL_DOCTOR_HOST_H
#define GRD_CTL_DOCTOR_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "client/ctl/doctor/doctor.h"

/*
 * Is there a device for the provider, "efa-direct" or "verbs", and may `uid` with `gid`, whom the daemon runs as, open
 * it? Skipped for "tcp", which needs none, and for an unknown one.
 */
void host_devices(const char *root, const char *provider, uid_t uid, gid_t gid, struct finding *finding);

/* Huge pages that were set aside; a warning where there are none although the provider pins memory. */
void host_huge_pages(const char *root, const char *provider, struct finding *finding);

#endif
