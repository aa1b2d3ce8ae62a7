#include <isa-l/crc.h>

#include "client/private.h"

/* crc32_iscsi takes an int length. */
#define CHECKSUM_PIECE ((size_t)1 << 30)

uint32_t grd_checksum(const void *data, size_t length)
{
    const unsigned char *at = data;
    unsigned state = ~0U;

    while (length > 0) {
        size_t piece = length < CHECKSUM_PIECE ? length : CHECKSUM_PIECE;
        /* The library's prototype lacks const; it does not write. */
        state = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)piece, state);
        at += piece;
        length -= piece;
    }
    return ~state;
}
