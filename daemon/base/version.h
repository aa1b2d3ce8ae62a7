/* The daemon's version: meson's project version, passed as a definition. */
#ifndef GRD_BASE_VERSION_H
#define GRD_BASE_VERSION_H

#ifndef GRD_VERSION
#error "GRD_VERSION comes from the build"
#endif

#endif
