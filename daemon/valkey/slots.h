/*
 * The slot of a key in a Valkey cluster: CRC-16 (XMODEM: polynomial 0x1021, start 0) modulo 16384, of the hashtag alone
 * where the key has one. Pure, thread safe.
 */
#ifndef GRD_VALKEY_SLOTS_H
#define GRD_VALKEY_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#define SLOTS 16384

/* The checksum by itself, for the tests. */
uint16_t slot_crc16(const void *bytes, size_t length);

/* A hashtag is what stands between the first '{' and the first '}' after it, unless that is nothing. */
unsigned slot_of_key(const void *key, size_t length);

#endif
